// Region: a called computation over scalars (to_apply of reduce, sort, scatter, map, ...) run on many lanes at once.
//
// A computation of nothing but scalar elementwise ops becomes a list of ScalarOps over lanes; anything else is evaluated
// lane by lane.
#pragma once

#include <vector>

#include "hlo/computation.h"
#include "hlo/eval/internal.h"
#include "hlo/eval/scalar_op.h"

namespace tenon::eval {

class Region {
 public:
  static absl::StatusOr<Region> Make(Context& context, const Computation& computation);

  static constexpr int64_t kMaxLanes = 256;
  // args[p]: `lanes` elements (one if splat) of parameter p; outs[k]: room for `lanes` elements of result leaf k, which
  // may alias args. lanes <= kMaxLanes.
  absl::Status Run(absl::Span<const ScalarOp::Operand> args, absl::Span<std::byte* const> outs,
                   int64_t lanes);

  int64_t result_count() const { return static_cast<int64_t>(result_widths_.size()); }

 private:
  struct Step {
    ScalarOp op;
    absl::InlinedVector<int, 3> operands;
    int64_t width;
  };
  bool Flatten();
  absl::Status RunSlow(absl::Span<const ScalarOp::Operand> args, absl::Span<std::byte* const> outs,
                       int64_t lanes);

  Context* context_ = nullptr;
  const Computation* computation_ = nullptr;
  bool flat_ = false;
  // Values: the parameters, then the constants, then one per step.
  std::vector<Literal> constants_;
  std::vector<Step> steps_;
  std::vector<int> results_;
  std::vector<int64_t> parameter_widths_, result_widths_;
  std::vector<std::byte> storage_;
};

}  // namespace tenon::eval
