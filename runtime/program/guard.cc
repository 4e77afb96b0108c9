#include "runtime/program/guard.h"

#include "absl/strings/str_cat.h"
#include "runtime/program/dim_program.h"

namespace tenon {
namespace {

std::string Place(const Guard& g) {
  switch (g.kind) {
    case Guard::Kind::kDim: return absl::StrCat("input ", g.input, "'s size along dim ", g.axis);
    case Guard::Kind::kStride: return absl::StrCat("input ", g.input, "'s stride along dim ", g.axis);
    case Guard::Kind::kNumber: return absl::StrCat("input ", g.input);
    case Guard::Kind::kRange: break;
  }
  return g.text;
}

absl::Status Broken(const Guard& g, int64_t wanted, int64_t came) {
  if (g.kind == Guard::Kind::kRange) return absl::FailedPreconditionError(absl::StrCat("wanted ", g.ToString(), ", got ", came));
  return absl::FailedPreconditionError(absl::StrCat(Place(g), ": wanted ", g.text, " = ", wanted, ", got ", came));
}

}  // namespace

std::string Guard::ToString() const {
  if (kind != Kind::kRange) return absl::StrCat(Place(*this), " is ", text);
  std::string range = absl::StrCat(text, " in [", lower, ", ", upper == INT64_MAX ? "inf" : absl::StrCat(upper), "]");
  if (divisor != 1) absl::StrAppend(&range, ", divisible by ", divisor);
  return range;
}

absl::Status CheckGuards(std::span<const Guard> guards, const TenonTensor* inputs, std::span<const int64_t> slots) {
  for (const Guard& g : guards) {
    const int64_t wanted = Resolve(g.size, slots);
    const TenonTensor& input = inputs[g.input];
    switch (g.kind) {
      case Guard::Kind::kRange:
        if (wanted < g.lower || wanted > g.upper || wanted % g.divisor != 0) return Broken(g, 0, wanted);
        break;
      case Guard::Kind::kDim:
        if (input.sizes[g.axis] != wanted) return Broken(g, wanted, input.sizes[g.axis]);
        break;
      case Guard::Kind::kStride: {
        bool matters = input.sizes[g.axis] != 1 && input.strides[g.axis] != wanted;
        for (int32_t d = 0; d < input.ndim && matters; ++d) matters = input.sizes[d] != 0;
        if (matters) return Broken(g, wanted, input.strides[g.axis]);
        break;
      }
      case Guard::Kind::kNumber:
        if (const auto came = static_cast<int64_t>(reinterpret_cast<intptr_t>(input.data)); came != wanted) return Broken(g, wanted, came);
        break;
    }
  }
  return absl::OkStatus();
}

}  // namespace tenon
