// What the runtime adds to library functions (hlo/library/call.h): the signature of a step, and what must hold of its views.
#pragma once

#include "absl/status/status.h"
#include "runtime/program/program.h"

namespace tenon {

// Row-major and dense with static sizes (strides of dims of one element aside).
bool IsDense(const View& view);
// Of a step whose views are static.
library::Signature SignatureOf(const LibraryStep& step);
// Known function, attributes and views as it wants them, scratch as it needs it.
absl::Status CheckLibraryStep(const LibraryStep& step);

}  // namespace tenon
