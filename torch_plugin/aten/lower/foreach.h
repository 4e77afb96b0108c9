// _foreach_*: each element of the lists is an ordinary call, so that fusion sees what it would see of a loop.
#pragma once

#include "absl/functional/function_ref.h"
#include "torch_plugin/aten/lower/op_context.h"

namespace tenon::aten {

// The results of `lower` on the calls that `op` makes for its results, one after the other. `node` may be changed before it is lowered.
Lowering ForEach(OpContext& op, absl::FunctionRef<void(Node* node)> change, absl::FunctionRef<Lowering(OpContext&, int64_t k)> lower);

}  // namespace tenon::aten
