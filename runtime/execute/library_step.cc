#include "runtime/execute/library_step.h"

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "hlo/check.h"
#include "runtime/program/dim_program.h"

namespace tenon {

bool IsDense(absl::Span<const int64_t> dims, absl::Span<const int64_t> strides) {
  int64_t stride = 1;
  if (absl::c_linear_search(dims, 0)) return true;
  for (size_t k = dims.size(); k-- > 0;) {
    if (dims[k] == 1) continue;
    if (strides[k] != stride) return false;
    stride *= dims[k];
  }
  return true;
}

bool IsStatic(const View& view) { return view.byte_offset >= 0 && IsStatic(view.dims) && IsStatic(view.strides); }
bool IsDense(const View& view) { return IsStatic(view) && IsDense(view.dims, view.strides); }
bool IsStatic(const LibraryStep& step) {
  const auto is_static = [](const View& v) { return IsStatic(v); };
  return absl::c_all_of(step.operands, is_static) && absl::c_all_of(step.results, is_static);
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
      if (!IsArrayType(v.dtype) || (IsStatic(v) && !IsDense(v))) return absl::InvalidArgumentError("a view that isn't dense");
    }
  }
  if (!IsStatic(step)) {
    const library::Function* function = library::FindFunction(step.function);
    if (function == nullptr || !function->takes_symbols) return absl::InvalidArgumentError("views of symbolic sizes");
    if (step.scratch_bytes == -1) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(step.scratch_bytes, " bytes of scratch for symbolic sizes"));
  }
  const library::Signature signature = SignatureOf(step);
  TENON_RETURN_IF_ERROR(library::CheckSignature(signature));
  if (const int64_t bytes = library::ScratchBytes(signature); bytes != step.scratch_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(step.scratch_bytes, " bytes of scratch, wanted ", bytes));
  }
  return absl::OkStatus();
}

LibrarySizes::LibrarySizes(const LibraryStep& step)
    : function_(library::FindFunction(step.function)),
      signature_{step.function, step.attributes, {}, {}},
      metas_(step.operands.size() + step.results.size()) {
  for (const View& v : step.operands) signature_.operands.emplace_back(v.dtype, DimVector());
  for (const View& v : step.results) signature_.results.emplace_back(v.dtype, DimVector());
}

void LibrarySizes::Set(size_t k, absl::Span<const int64_t> dims, absl::Span<const int64_t> strides) {
  std::vector<int64_t>& meta = metas_[k];
  const absl::Span<const int64_t> before = meta;
  if (before.size() == 2 * dims.size() && before.first(dims.size()) == dims && before.subspan(dims.size()) == strides) return;
  changed_ = true;  // and `meta` last: where memory is out, the next call finds nothing done
  const size_t operands = signature_.operands.size();
  Shape& shape = k < operands ? signature_.operands[k] : signature_.results[k - operands];
  shape = Shape(shape.element_type(), DimVector(dims.begin(), dims.end()));
  meta.assign(dims.begin(), dims.end());
  meta.insert(meta.end(), strides.begin(), strides.end());
}

absl::Status LibrarySizes::Check() {
  if (!changed_) return absl::OkStatus();
  for (const std::vector<int64_t>& meta : metas_) {
    const absl::Span<const int64_t> both = meta;
    if (!IsDense(both.first(both.size() / 2), both.subspan(both.size() / 2))) return absl::InternalError("a view that isn't dense");
  }
  TENON_RETURN_IF_ERROR(function_->check(signature_));
  scratch_bytes_ = library::ScratchBytes(signature_);
  changed_ = false;
  return absl::OkStatus();
}

}  // namespace tenon
