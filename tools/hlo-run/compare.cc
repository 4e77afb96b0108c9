#include "tools/hlo-run/compare.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "hlo/tolerance.h"

namespace tenon::run {
namespace {

ToleranceRule RuleFor(PrimitiveType type, const Options& o) {
  if (o.ulp >= 0) return ToleranceRule::Ulps(o.ulp);
  double own = 0;
  switch (ComplexComponent(type)) {
    case PrimitiveType::kF64:
      own = 1e-12;
      break;
    case PrimitiveType::kF32:
      own = 1e-5;
      break;
    case PrimitiveType::kF16:
      own = 2e-3;
      break;
    case PrimitiveType::kBF16:
      own = 1.6e-2;
      break;
    default:
      own = IsFloat(type) ? 0.125 : 0;
  }
  return ToleranceRule::AbsRel(o.atol < 0 ? own : o.atol, o.rtol < 0 ? own : o.rtol);
}

void PrintLine(const std::string& what, size_t i, const std::string& shape, const LiteralDifference& d) {
  if (d.elements == 0 && !d.within) {
    std::printf("%s output %zu %s: %s\n", what.c_str(), i, shape.c_str(), d.what.c_str());
    return;
  }
  if (d.elements == 0 || d.what.empty()) {
    std::printf("%s output %zu %s: equal%s\n", what.c_str(), i, shape.c_str(),
                d.ulp > 0 ? absl::StrFormat(" within tolerance, largest distance %d ULP", d.ulp).c_str() : "");
    return;
  }
  std::printf("%s output %zu %s: %s; %s\n", what.c_str(), i, shape.c_str(),
              d.within ? "within tolerance" : absl::StrFormat("%d of %d elements off", d.differing, d.elements).c_str(),
              absl::StrFormat("worst at [%s]: got %.9g, want %.9g, abs %.3g, rel %.3g; largest distance %d ULP",
                              absl::StrJoin(d.index, ","), d.got, d.want, d.abs, d.rel, d.ulp)
                  .c_str());
}

nlohmann::ordered_json Row(const std::string& what, size_t i, const std::string& shape, const LiteralDifference& d) {
  nlohmann::ordered_json row = {
      {"backend", what},          {"output", i}, {"shape", shape}, {"within", d.within}, {"elements", d.elements},
      {"differing", d.differing}, {"ulp", d.ulp}};
  if (d.elements > 0 && !d.what.empty())
    row["worst"] = {{"index", d.index}, {"got", d.got}, {"want", d.want}, {"abs", d.abs}, {"rel", d.rel}};
  return row;
}

}  // namespace

int Compare(const std::vector<Literal>& got, const std::vector<Literal>& want, const std::string& what,
            const Options& options, nlohmann::ordered_json* json) {
  if (got.size() != want.size()) {
    const std::string message = absl::StrCat(what, ": wanted ", want.size(), " outputs, got ", got.size());
    if (json != nullptr)
      json->push_back({{"backend", what}, {"within", false}, {"message", message}});
    else
      std::printf("%s\n", message.c_str());
    return 1;
  }
  int off = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const LiteralDifference d = CompareLiterals(got[i], want[i], RuleFor(got[i].type(), options));
    if (!d.within) ++off;
    if (json != nullptr)
      json->push_back(Row(what, i, got[i].shape().ToString(), d));
    else
      PrintLine(what, i, got[i].shape().ToString(), d);
  }
  return off;
}

}  // namespace tenon::run
