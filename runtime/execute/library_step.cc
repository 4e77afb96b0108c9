#include "runtime/execute/library_step.h"

#include "absl/strings/str_cat.h"
#include "hlo/check.h"
#include "runtime/program/dim_program.h"

namespace tenon {

bool IsDense(const View& view) {
  if (view.byte_offset < 0 || !IsStatic(view.dims) || !IsStatic(view.strides)) return false;
  int64_t stride = 1;
  for (int64_t d : view.dims) {
    if (d == 0) return true;
  }
  for (size_t k = view.dims.size(); k-- > 0;) {
    if (view.dims[k] == 1) continue;
    if (view.strides[k] != stride) return false;
    stride *= view.dims[k];
  }
  return true;
}

library::Signature SignatureOf(const LibraryStep& step) {
  library::Signature signature{step.function, step.attributes, {}, {}};
  for (const View& v : step.operands) signature.operands.push_back(Shape::Array(v.dtype, v.dims));
  for (const View& v : step.results) signature.results.push_back(Shape::Array(v.dtype, v.dims));
  return signature;
}

absl::Status CheckLibraryStep(const LibraryStep& step) {
  for (const std::vector<View>* views : {&step.operands, &step.results}) {
    for (const View& v : *views) {
      if (v.value < 0) return absl::InvalidArgumentError("an absent array");
      if (!IsArrayType(v.dtype) || !IsDense(v)) return absl::InvalidArgumentError("a view that isn't dense");
    }
  }
  const library::Signature signature = SignatureOf(step);
  TENON_RETURN_IF_ERROR(library::CheckSignature(signature));
  if (const int64_t bytes = library::ScratchBytes(signature); bytes != step.scratch_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(step.scratch_bytes, " bytes of scratch, wanted ", bytes));
  }
  return absl::OkStatus();
}

}  // namespace tenon
