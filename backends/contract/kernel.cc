#include "backends/contract/kernel.h"

#include "passes/expand/control_flow.h"
#include "passes/memory/value_views.h"

namespace tenon {

KernelRequest RequestOf(const Instruction& fusion, const ValueViews& views) {
  auto layout = [&](BufferKey key) {
    const StridedView& view = views.at(key);
    return OperandLayout{.strides = {view.strides.begin(), view.strides.end()}, .offset = view.offset};
  };
  KernelRequest request{.fusion = &fusion};
  for (const Instruction* operand : fusion.operands()) request.operands.push_back(layout({operand, 0}));
  const int64_t leaves = LeafCount(fusion.shape());
  for (int64_t leaf = 0; leaf < leaves; ++leaf) request.results.push_back(layout({&fusion, leaf}));
  return request;
}

}  // namespace tenon
