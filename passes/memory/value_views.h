// ValueViews: where every leaf of every value of a scheduled module lies, regions included, before memory is known.
//
// A leaf *owns* its buffer, or it lies in another's: view ops, tuples, their elements and opt-barriers in their operands';
//   a while's state: one buffer per leaf, owned by the while ({while, leaf}); parameter of condition and body and the result lie
//     in it. A leaf that the body hands on unchanged and that is dense has none: it stays where its initial value lies;
//   the parameter of a branch lies where the conditional's operand does; a conditional's results own their buffers.
// Tokens have no memory and no view; what an opaque value is nobody knows, so it is a scalar of no size.
#pragma once

#include <functional>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "passes/memory/strided_view.h"

namespace tenon {

class ValueViews {
 public:
  // Strides of a leaf that owns its buffer where the layout doesn't say them (framework tensors); may be null.
  using OwnStrides = std::function<std::optional<DimVector>(const Instruction& op, int64_t leaf)>;

  ValueViews() = default;
  explicit ValueViews(const Module& module, OwnStrides own_strides = nullptr);

  bool Has(BufferKey leaf) const { return views_.contains(leaf); }
  const StridedView& at(BufferKey leaf) const;
  const StridedView& Of(const Instruction* op) const { return at({op, 0}); }
  // The leaf is exactly its buffer: what writes the one writes the other.
  bool IsWhole(BufferKey leaf) const;
  // No step computes it: all its leaves lie in others' buffers.
  bool IsAlias(const Instruction& op) const { return aliases_.contains(&op); }

 private:
  void Visit(const Computation& c);
  void VisitWhile(const Instruction& loop);
  void VisitConditional(const Instruction& conditional);
  bool Alias(const Instruction& op);
  void Own(const Instruction& op);
  void OwnLeaf(const Instruction& op, int64_t leaf, const Shape& shape);
  void Copy(BufferKey to, BufferKey from);

  OwnStrides own_strides_;
  absl::flat_hash_map<BufferKey, StridedView> views_;
  absl::flat_hash_set<const Instruction*> aliases_;
};

}  // namespace tenon
