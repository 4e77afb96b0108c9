#include "runtime/execute/input_check.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tenon {
namespace {

bool Matches(const InputSpec& want, const TenonTensor& got, bool strides_matter) {
  if (got.dtype != static_cast<int32_t>(want.dtype) ||
      got.ndim != static_cast<int32_t>(want.dims.size()))
    return false;
  bool same_strides = true;
  for (int d = 0; d < got.ndim; ++d) {
    if (want.dims[d] >= 0 && got.sizes[d] != want.dims[d]) return false;
    if (got.sizes[d] < 0) return false;
    if (got.sizes[d] == 0) strides_matter = false;
    same_strides &= got.sizes[d] == 1 || want.strides[d] < 0 || got.strides[d] == want.strides[d];
  }
  return same_strides || !strides_matter;
}

std::string Sizes(const std::vector<SizeRef>& refs) {
  return absl::StrJoin(refs, ",", [](std::string* out, SizeRef r) {
    absl::StrAppend(out, r >= 0 ? absl::StrCat(r) : "?");
  });
}

std::string TypeName(int32_t dtype) {
  if (dtype < 0 || dtype > static_cast<int32_t>(PrimitiveType::kBuffer)) return "unknown";
  return std::string(PrimitiveTypeName(static_cast<PrimitiveType>(dtype)));
}

std::string Text(int32_t dtype, const std::string& sizes, const std::string& strides) {
  return absl::StrCat("dtype ", TypeName(dtype), ", shape [", sizes, "], strides {", strides, "}");
}

absl::Status Mismatch(size_t index, const InputSpec& want, const TenonTensor& got) {
  const std::string came =
      got.ndim < 0 ? "something that is no dense tensor"
                   : Text(got.dtype, absl::StrJoin(got.sizes, got.sizes + got.ndim, ","),
                          absl::StrJoin(got.strides, got.strides + got.ndim, ","));
  return absl::InvalidArgumentError(
      absl::StrCat("input ", index, want.name.empty() ? "" : absl::StrCat(" (", want.name, ")"),
                   ": compiled for ",
                   Text(static_cast<int32_t>(want.dtype), Sizes(want.dims), Sizes(want.strides)),
                   "; got ", came));
}

}  // namespace

absl::Status CheckInputs(const Program& program, const TenonTensor* inputs) {
  const bool native = program.tier == Program::Tier::kNative;
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const InputSpec& want = program.inputs[i];
    if (want.kind == InputSpec::Kind::kTensor && !Matches(want, inputs[i], native))
      return Mismatch(i, want, inputs[i]);
  }
  return absl::OkStatus();
}

}  // namespace tenon
