#include "backends/codegen/plan/kernel_plan.h"

#include <algorithm>
#include <array>
#include <bit>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "hlo/check.h"

namespace tenon {
namespace {

constexpr std::array<std::string_view, 10> kKindNames = {
    "loop", "contraction", "attention", "row", "column", "transpose", "scatter", "select-and-scatter", "sort", "scan"};

std::string Numbers(std::string_view name, const std::vector<int64_t>& v) {
  return v.empty() ? std::string(name)
                   : absl::StrCat(std::string(name), " ", absl::StrJoin(v, " "));
}

// A cursor over the text; every Take says what it wanted.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}
  bool Eat(std::string_view token) {
    while (!text_.empty() && text_[0] == ' ') text_.remove_prefix(1);
    if (!text_.starts_with(token)) return false;
    text_.remove_prefix(token.size());
    return true;
  }
  absl::Status Take(std::string_view token) {
    if (Eat(token)) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("kernel plan: wanted \"", std::string(token),
                                                   "\" at \"", std::string(text_.substr(0, 20)),
                                                   "\""));
  }
  absl::StatusOr<int64_t> Number() {
    Eat("");
    size_t n = text_.starts_with("-") ? 1 : 0;
    while (n < text_.size() && text_[n] >= '0' && text_[n] <= '9') ++n;
    int64_t value;
    if (!absl::SimpleAtoi(std::string(text_.substr(0, n)), &value)) {
      return absl::InvalidArgumentError(absl::StrCat("kernel plan: wanted a number at \"",
                                                     std::string(text_.substr(0, 20)), "\""));
    }
    text_.remove_prefix(n);
    return value;
  }
  // Up to one of `stops` outside parentheses.
  std::string Until(std::string_view stops) {
    size_t n = 0;
    for (int depth = 0;
         n < text_.size() && (depth > 0 || stops.find(text_[n]) == std::string_view::npos); ++n) {
      depth += text_[n] == '(' ? 1 : text_[n] == ')' ? -1 : 0;
    }
    std::string r(text_.substr(0, n));
    text_.remove_prefix(n);
    return r;
  }
  bool NextIsDigit() {
    Eat("");
    return !text_.empty() && text_[0] >= '0' && text_[0] <= '9';
  }
  bool done() { return Eat("") && text_.empty(); }

 private:
  std::string_view text_;
};

absl::StatusOr<PlanLoop> ReadLoop(Reader& in, DimTable* dims) {
  PlanLoop loop;
  do {
    TENON_ASSIGN_OR_RETURN(int64_t d, in.Number());
    loop.dims.push_back(d);
  } while (in.Eat("+"));
  TENON_RETURN_IF_ERROR(in.Take(":"));
  std::string extent = in.Until(" ]");
  if (extent.ends_with("!")) {
    loop.reduced = true;
    extent.pop_back();
  }
  TENON_ASSIGN_OR_RETURN(loop.extent, dims->Parse(extent));
  return loop;
}

absl::Status ReadNumbers(Reader& in, std::vector<int64_t>* out) {
  while (in.NextIsDigit()) {
    TENON_ASSIGN_OR_RETURN(int64_t n, in.Number());
    out->push_back(n);
  }
  return absl::OkStatus();
}

absl::StatusOr<PlanPhase> ReadPhase(Reader& in) {
  PlanPhase phase;
  TENON_RETURN_IF_ERROR(in.Take("reduces"));
  TENON_RETURN_IF_ERROR(ReadNumbers(in, &phase.reduces));
  TENON_RETURN_IF_ERROR(in.Take("; roots"));
  TENON_RETURN_IF_ERROR(ReadNumbers(in, &phase.roots));
  TENON_RETURN_IF_ERROR(in.Take("; kept"));
  TENON_RETURN_IF_ERROR(ReadNumbers(in, &phase.kept));
  if (in.Eat("; lent")) {
    while (in.NextIsDigit()) {
      TENON_ASSIGN_OR_RETURN(const int64_t value, in.Number());
      TENON_RETURN_IF_ERROR(in.Take(":"));
      TENON_ASSIGN_OR_RETURN(const int64_t root, in.Number());
      phase.lent.push_back({value, root});
    }
  }
  TENON_RETURN_IF_ERROR(in.Take("}"));
  return phase;
}

}  // namespace

std::string_view PlanKindName(PlanKind kind) { return kKindNames[static_cast<size_t>(kind)]; }

std::string ToString(const KernelPlan& plan) {
  std::vector<std::string> loops, phases;
  for (const PlanLoop& l : plan.loops) {
    loops.push_back(
        absl::StrCat(absl::StrJoin(l.dims, "+"), ":", l.extent.ToString(), l.reduced ? "!" : ""));
  }
  for (const PlanPhase& p : plan.phases) {
    std::string lent;
    for (const PlanPhase::Lent& l : p.lent) absl::StrAppend(&lent, lent.empty() ? "; lent " : " ", l.value, ":", l.root);
    phases.push_back(absl::StrCat("{", Numbers("reduces", p.reduces), "; ",
                                  Numbers("roots", p.roots), "; ", Numbers("kept", p.kept), lent, "}"));
  }
  return absl::StrCat(std::string(PlanKindName(plan.kind)), " loops=[", absl::StrJoin(loops, " "),
                      "] split=", plan.split, " block=", plan.block, " tile=", plan.tile_loop,
                      plan.rows > 0 ? absl::StrCat(" rows=", plan.rows) : "", plan.packed ? " packed" : "",
                      " lanes=", plan.lanes, " unroll=", plan.unroll,
                      " tail=", plan.masked_tail ? "mask" : "scalar", " phases=[",
                      absl::StrJoin(phases, " "), "] scratch=", plan.scratch_bytes);
}

absl::StatusOr<KernelPlan> ParseKernelPlan(std::string_view text, DimTable* dims) {
  Reader in(text);
  KernelPlan plan;
  size_t kind = 0;
  while (kind < kKindNames.size() && !in.Eat(absl::StrCat(std::string(kKindNames[kind]), " ")))
    ++kind;
  if (kind == kKindNames.size()) return absl::InvalidArgumentError("kernel plan: wanted a kind");
  plan.kind = static_cast<PlanKind>(kind);
  TENON_RETURN_IF_ERROR(in.Take("loops=["));
  while (!in.Eat("]")) {
    TENON_ASSIGN_OR_RETURN(PlanLoop loop, ReadLoop(in, dims));
    plan.loops.push_back(std::move(loop));
  }
  auto number = [&in](std::string_view name, auto* to) -> absl::Status {
    TENON_RETURN_IF_ERROR(in.Take(name));
    TENON_ASSIGN_OR_RETURN(int64_t n, in.Number());
    *to = static_cast<std::remove_pointer_t<decltype(to)>>(n);
    return absl::OkStatus();
  };
  TENON_RETURN_IF_ERROR(number("split=", &plan.split));
  TENON_RETURN_IF_ERROR(number("block=", &plan.block));
  TENON_RETURN_IF_ERROR(number("tile=", &plan.tile_loop));
  if (in.Eat("rows=")) TENON_RETURN_IF_ERROR(number("", &plan.rows));
  plan.packed = in.Eat("packed");
  TENON_RETURN_IF_ERROR(number("lanes=", &plan.lanes));
  TENON_RETURN_IF_ERROR(number("unroll=", &plan.unroll));
  TENON_RETURN_IF_ERROR(in.Take("tail="));
  plan.masked_tail = in.Eat("mask");
  if (!plan.masked_tail) TENON_RETURN_IF_ERROR(in.Take("scalar"));
  TENON_RETURN_IF_ERROR(in.Take("phases=["));
  while (!in.Eat("]")) {
    TENON_RETURN_IF_ERROR(in.Take("{"));
    TENON_ASSIGN_OR_RETURN(PlanPhase phase, ReadPhase(in));
    plan.phases.push_back(std::move(phase));
  }
  TENON_RETURN_IF_ERROR(number("scratch=", &plan.scratch_bytes));
  if (!in.done()) return absl::InvalidArgumentError("kernel plan: trailing text");
  return plan;
}

Dim RowLength(const KernelPlan& plan) {
  Dim length = 1;
  for (const PlanLoop& l : plan.loops) {
    if (l.reduced) length *= l.extent;
  }
  return length;
}

int64_t KeptLength(const KernelPlan& plan) {
  constexpr int64_t kAtLeast = 1024, kAtMost = 32768;
  const Dim length = RowLength(plan);
  if (length.is_constant()) return length.constant();
  const int64_t typical = Typical(length);
  if (typical > kAtMost) return 0;
  return std::clamp(2 * static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(typical, 1)))), kAtLeast, kAtMost);
}

Dim UnitsOf(const KernelPlan& plan) {
  Dim units = 1;
  for (int i = 0; i < plan.split; ++i) units *= plan.loops[i].extent;
  const int blocked = plan.kind == PlanKind::kTranspose ? plan.tile_loop : static_cast<int>(plan.loops.size()) - 1;
  if (plan.block > 0 && plan.kind != PlanKind::kAttention) units *= CeilDiv(plan.loops[blocked].extent, plan.block);
  const bool tiles = plan.kind == PlanKind::kContraction || plan.kind == PlanKind::kAttention;
  if (plan.rows > 0 && tiles) units *= CeilDiv(plan.loops[plan.tile_loop].extent, plan.rows);
  return units;
}

}  // namespace tenon
