#include "tests/backends/hlo_cases.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

namespace tenon {
namespace {

HloCase ParseCase(const std::string& file, const std::string& text) {
  HloCase c{.file = file, .text = text};
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string slashes, key;
    words >> slashes >> key;
    if (slashes != "//") continue;
    if (key == "name:") words >> c.name;
    if (key == "plan:") {
      std::string rest;
      std::getline(words >> std::ws, rest);
      c.plan.push_back(rest);
    }
    if (key == "strict") c.strict = true;
    if (key == "specials") c.specials = true;
    if (key == "range:") c.has_range = static_cast<bool>(words >> c.low >> c.high);
    if (key == "in_place:") words >> c.in_place;
    if (key == "tolerance:") {
      std::string kind, rel;
      double a = 0, r = 0;
      words >> kind;
      if (kind == "ulps") {
        words >> a;
        c.tolerance = ToleranceRule::Ulps(static_cast<int64_t>(a));
      } else if (kind == "abs") {
        words >> a >> rel >> r;
        c.tolerance = ToleranceRule::AbsRel(a, r);
      }
    }
  }
  return c;
}

}  // namespace

std::vector<HloCase> LoadCases(const std::string& directory) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() == ".hlo") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<HloCase> cases;
  for (const auto& path : files) {
    std::ifstream in(path);
    std::string text, line;
    auto flush = [&] {
      if (text.find("HloModule") != std::string::npos)
        cases.push_back(ParseCase(path.stem().string(), text));
      text.clear();
    };
    while (std::getline(in, line)) {
      if (line.starts_with("// ----")) {
        flush();
      } else {
        text += line + "\n";
      }
    }
    flush();
  }
  return cases;
}

Literal RandomLiteral(const Shape& shape, const HloCase& c, uint64_t seed) {
  Literal l(Shape::Array(shape.element_type(), shape.constant_dims()));
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, 2);
  std::uniform_real_distribution<double> uniform(c.low, c.high);
  const double inf = std::numeric_limits<double>::infinity();
  const double specials[] = {0.0, -0.0, inf,  -inf, std::nan(""), 1e-41, -1e-41,
                             1.0, -1.0, 3e38, 0.5,  2.5,          -1e10, 1e20};
  auto number = [&] {
    const double v = c.has_range ? uniform(random) : normal(random);
    return c.specials && random() % 3 == 0 ? specials[random() % std::size(specials)] : v;
  };
  for (int64_t i = 0; i < l.num_elements(); ++i) {
    const size_t at = static_cast<size_t>(i);
    if (IsFloat(shape.element_type())) {
      l.SetFromDouble(i, number());
    } else if (shape.element_type() == PrimitiveType::kC64) {
      const double re = number();
      l.mutable_data<std::complex<float>>()[at] = std::complex<float>(std::complex(re, number()));
    } else if (shape.element_type() == PrimitiveType::kC128) {
      const double re = number();
      l.mutable_data<std::complex<double>>()[at] = {re, number()};
    } else if (shape.element_type() == PrimitiveType::kPred) {
      l.SetFromInt64(i, static_cast<int64_t>(random() % 2));
    } else {
      int64_t v = static_cast<int64_t>(std::floor(uniform(random) + 0.5));
      if (c.specials && random() % 3 == 0) {
        const int64_t extremes[] = {0,
                                    -1,
                                    1,
                                    std::numeric_limits<int64_t>::min(),
                                    std::numeric_limits<int64_t>::max(),
                                    std::numeric_limits<int32_t>::min(),
                                    127,
                                    -128,
                                    31,
                                    32,
                                    33,
                                    64};
        v = extremes[random() % std::size(extremes)];
      }
      l.SetFromInt64(i, v);
    }
  }
  return l;
}

std::vector<Literal> Leaves(const Literal& l) {
  if (!l.shape().is_tuple()) return {l};
  std::vector<Literal> leaves;
  for (const Literal& e : l.elements()) {
    for (const Literal& leaf : Leaves(e)) leaves.push_back(leaf);
  }
  return leaves;
}

std::vector<HloCase> DeviceCases() {
  std::vector<HloCase> cases = LoadCases(std::string(TENON_SOURCE_DIR) + "/tests/backends");
  for (HloCase& c : LoadCases(std::string(TENON_SOURCE_DIR) + "/tests/backends/control")) cases.push_back(std::move(c));
  return cases;
}

std::string TestName(const HloCase& c) {
  std::string name = c.file + "_" + c.name;
  for (char& ch : name) {
    if (!isalnum(static_cast<unsigned char>(ch))) ch = '_';
  }
  return name;
}

namespace {

Literal Argument(const Shape& shape, const HloCase& c, uint64_t* seed) {
  if (shape.is_array()) return RandomLiteral(shape, c, ++*seed);
  std::vector<Literal> elements;
  for (const Shape& e : shape.elements()) elements.push_back(Argument(e, c, seed));
  return Literal::Tuple(std::move(elements));
}

}  // namespace

std::vector<Literal> ArgumentsOf(const Module& module, const HloCase& c, uint64_t seed) {
  std::vector<Literal> args;
  for (const Instruction* p : module.entry()->parameters()) {
    args.push_back(p->shape().element_type() == PrimitiveType::kToken ? Literal(p->shape()) : Argument(p->shape(), c, &seed));
  }
  return args;
}

EvalOptions ChecksPass() {
  EvalOptions options;
  options.custom_calls["tenon.check"] = [](const Instruction&, absl::Span<const Literal>) -> absl::StatusOr<Literal> {
    return Literal::ScalarInt(PrimitiveType::kPred, 0);
  };
  return options;
}

}  // namespace tenon
