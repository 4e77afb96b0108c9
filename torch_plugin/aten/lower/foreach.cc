#include "torch_plugin/aten/lower/foreach.h"

#include "torch_plugin/aten/lower/reduce.h"

namespace tenon::aten {

using Kind = FrameworkArg::Kind;

Lowering ForEach(OpContext& op, absl::FunctionRef<void(Node* node)> change, absl::FunctionRef<Lowering(OpContext&, int64_t k)> lower) {
  const OpRow* row = FindRow(op.row().element);
  TENON_CHECK(row != nullptr && row->kind == RowKind::kLowered, op.node().op + ": its element has no lowering");
  Values results;
  for (int64_t k = 0; k < op.result_count(); ++k) {
    Node node = op.ElementNode(k);
    change(&node);
    OpContext element = op.Within(node, *row);
    Lowering one = lower(element, k);
    if (!one.ok()) return one.status();
    TENON_CHECK(one->size() == 1, op.node().op + ": one result of each element");
    results.push_back(one->front());
  }
  return results;
}

namespace {

void Keep(Node*) {}
// (self, ord, dtype) are the arguments of linalg_vector_norm(self, ord, dim=None, keepdim=False, dtype).
void AsNorm(Node* node) {
  node->args.insert(node->args.begin() + 2, {FrameworkArg::None(), FrameworkArg{.kind = Kind::kBool, .i = 0}});
}
Lowering ByRow(OpContext& element, int64_t) { return element.row().lower(element); }

}  // namespace

Lowering LowerForeach(OpContext& op) { return ForEach(op, Keep, ByRow); }

Lowering LowerForeachNorm(OpContext& op) { return ForEach(op, AsNorm, ByRow); }

// The same arguments; no root is taken.
Lowering LowerForeachPowsum(OpContext& op) {
  return ForEach(op, AsNorm, [](OpContext& element, int64_t) { return PowerSum(element); });
}

}  // namespace tenon::aten
