// AppendFingerprint: what a fused computation means, for structural dedupe.
#include "backends/codegen/fused/fused_kernel.h"
#include "hlo/canonical_bytes.h"

namespace tenon {
namespace {

void Append(const FusedKernel& f, const Instruction& op, ByteStream* out) {
  out->Enum(op.opcode());
  out->Add(op.shape(), /*with_layout=*/op.opcode() == Opcode::kBitcast);
  out->Number(op.operand_count());
  for (const Instruction* o : op.operands()) out->Number(static_cast<int64_t>(f.number.at(o)));
  if (op.opcode() == Opcode::kParameter) out->Number(op.parameter_number());
  if (op.opcode() == Opcode::kBitcast) out->Add(op.operand(0)->shape(), /*with_layout=*/true);
  if (op.opcode() == Opcode::kConstant) {
    const auto it = f.literal_of.find(&op);
    out->Bool(it != f.literal_of.end());
    if (it != f.literal_of.end()) {
      out->Number(static_cast<int64_t>(it->second));
    } else {
      out->Add(op.literal());
    }
  }
  for (const auto& [attr, value] : op.attrs()) {
    if (attr == Attr::kFrontendAttributes || attr == Attr::kSharding || IsRemark(attr)) continue;
    AppendAttribute(attr, value, [out](const Computation* c) { AppendComputation(*c, out); }, out);
  }
  out->Number(-1);  // no attribute
}

void Append(const std::vector<OperandLayout>& layouts, ByteStream* out) {
  out->Number(layouts.size());
  for (const OperandLayout& l : layouts) out->AddDims(l.strides);
}

}  // namespace

void AppendFingerprint(const FusedKernel& f, ByteStream* out) {
  out->Number(f.order.size());
  for (const Instruction* op : f.order) Append(f, *op, out);
  out->Number(static_cast<int64_t>(f.number.at(f.computation->root())));
  Append(f.operands, out);
  Append(f.results, out);
}

Likeness LikenessOf(const FusedKernel& f) {
  size_t key = f.order.size();
  for (const Instruction* op : f.order) {
    const PrimitiveType type = op->shape().is_array() ? op->shape().element_type() : PrimitiveType::kTuple;
    key = absl::HashOf(key, op->opcode(), type);
    for (const Computation* c : op->called_computations()) key = absl::HashOf(key, c->root()->opcode());
  }
  return {key, static_cast<int64_t>(f.order.size())};
}

}  // namespace tenon
