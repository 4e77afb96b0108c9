// What the runtime adds to library functions (hlo/library/call.h): the signature of a step, and what must hold of its views.
#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "runtime/program/program.h"

namespace tenon {

// Row-major and dense (strides of dims of one element aside).
bool IsDense(absl::Span<const int64_t> dims, absl::Span<const int64_t> strides);
// That, with static sizes and a static offset.
bool IsDense(const View& view);
bool IsStatic(const View& view);
// All views of the step are.
bool IsStatic(const LibraryStep& step);
// Of a step whose views are static.
library::Signature SignatureOf(const LibraryStep& step);
// Known function, attributes and views as it wants them, scratch as it needs it. Of views of symbolic sizes: the function takes such; the
// rest is asked of the sizes of a call (LibrarySizes).
absl::Status CheckLibraryStep(const LibraryStep& step);

// A step of symbolic sizes in a frame: the signature of the last call's. Not thread-safe.
class LibrarySizes {
 public:
  explicit LibrarySizes(const LibraryStep& step);
  // The dims and strides of view k in this call, operands first, then results.
  void Set(size_t k, absl::Span<const int64_t> dims, absl::Span<const int64_t> strides);
  // Behind all Set: the function's check of sizes that aren't the last call's, and that views are dense.
  absl::Status Check();

  const library::Signature& signature() const { return signature_; }
  int64_t scratch_bytes() const { return scratch_bytes_; }

 private:
  const library::Function* function_;
  library::Signature signature_;
  std::vector<std::vector<int64_t>> metas_;  // dims and strides by view
  bool changed_ = true;
  int64_t scratch_bytes_ = 0;
};

}  // namespace tenon
