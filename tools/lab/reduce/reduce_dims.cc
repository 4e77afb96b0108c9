#include "tools/lab/reduce/reduce_dims.h"

#include <algorithm>
#include <cstring>

#include "absl/container/flat_hash_map.h"
#include "hlo/infer/infer.h"
#include "tools/lab/reduce/dim_union.h"

namespace tenon::lab {
namespace {

Shape& LeafOf(Shape* shape, size_t leaf) {
  if (!shape->is_tuple()) return *shape;
  for (size_t k = 0;; ++k) {
    Shape& element = shape->mutable_element(static_cast<int64_t>(k));
    const size_t n = FlattenShape(element).size();
    if (leaf < n) return LeafOf(&element, leaf);
    leaf -= n;
  }
}

// Sizes being assigned to classes of one module.
class Resizer {
 public:
  explicit Resizer(Module* module) : module_(module), classes_(*module) {
    for (const Computation* c : module->computations()) {
      for (const Instruction* op : c->PostOrder()) original_[op] = op->shape();
    }
  }

  bool Run(absl::Span<const DimClass> which, int64_t size) {
    for (const DimClass& c : which) {
      Instruction* at = At(*module_, c.at);
      if (at == nullptr) return false;
      assigned_[classes_.Class(at, c.leaf, c.dim)] = size;
    }
    for (int round = 0; round < 20; ++round) {
      Apply();
      bool more = false;
      for (Computation* c : module_->computations()) {
        for (Instruction* op : c->PostOrder()) {
          AdaptAttributes(op);
          if (!Follow(op, &more)) return false;
        }
      }
      if (!more) return true;
    }
    return false;
  }

 private:
  void Apply() {
    for (const DimUnion::Node& node : classes_.nodes()) {
      auto it = assigned_.find(classes_.Find(static_cast<int>(&node - classes_.nodes().data())));
      if (it == assigned_.end()) continue;
      LeafOf(&const_cast<Instruction*>(node.op)->mutable_shape(), node.leaf)
          .set_dim(node.dim, it->second);
    }
  }

  // False: the class has another size already.
  bool Assign(Instruction* op, size_t leaf, int64_t dim, int64_t size, bool* more) {
    auto [it, is_new] = assigned_.try_emplace(classes_.Class(op, leaf, dim), size);
    *more |= is_new;
    if (is_new) LeafOf(&op->mutable_shape(), leaf).set_dim(dim, size);
    return it->second == size;
  }

  static void AdaptSlice(Instruction* op, const Shape& was, const Shape& operand_was) {
    SliceSpec slice = op->attrs().get<SliceSpec>(Attr::kSlice);
    for (int64_t d = 0; d < op->shape().rank(); ++d) {
      const int64_t n = op->operand(0)->shape().constant_dim(d), stride = slice.strides[d];
      const int64_t start = slice.starts[d].constant();
      int64_t wanted = op->shape().constant_dim(d);
      if (op->shape().dim(d) == was.dim(d)) {
        // Not asked for: what is left of it.
        wanted = std::min(wanted, std::max<int64_t>(1, (n + stride - 1) / stride));
        if (n == operand_was.constant_dim(d)) continue;
      }
      const int64_t span = wanted == 0 ? 0 : (wanted - 1) * stride + 1;
      const int64_t from = std::clamp<int64_t>(start, 0, std::max<int64_t>(0, n - span));
      slice.starts[d] = from;
      slice.limits[d] = std::min(n, from + span);
    }
    op->mutable_attrs().set(Attr::kSlice, slice);
  }

  void AdaptAttributes(Instruction* op) {
    if (!op->shape().is_array() || !op->shape().is_static()) return;
    if (op->opcode() == Opcode::kSlice) AdaptSlice(op, original_[op], original_[op->operand(0)]);
    if (op->opcode() == Opcode::kDynamicSlice) {
      std::vector<int64_t> sizes = op->shape().constant_dims();
      for (int64_t d = 0; d < op->shape().rank(); ++d)
        sizes[d] = std::min(sizes[d], op->operand(0)->shape().constant_dim(d));
      op->mutable_attrs().set(Attr::kDynamicSliceSizes, std::move(sizes));
    }
    if (op->opcode() == Opcode::kGather) {
      std::vector<Dim> sizes = op->dim_list(Attr::kSliceSizes);
      const auto offset = op->int_list(Attr::kOffsetDims),
                 collapsed = op->int_list(Attr::kCollapsedSliceDims);
      const auto batching = op->int_list(Attr::kOperandBatchingDims);
      size_t next = 0;
      for (size_t d = 0; d < sizes.size(); ++d) {
        const int64_t dim = static_cast<int64_t>(d);
        if (std::find(collapsed.begin(), collapsed.end(), dim) != collapsed.end()) continue;
        if (std::find(batching.begin(), batching.end(), dim) != batching.end()) continue;
        if (next >= offset.size()) break;
        sizes[d] = std::min(op->shape().constant_dim(offset[next++]),
                            op->operand(0)->shape().constant_dim(dim));
      }
      op->mutable_attrs().set(Attr::kSliceSizes, std::move(sizes));
    }
  }

  // A reshape's group of dims changes with its partner: one side has a single dim to set.
  bool FollowReshape(Instruction* op, bool* more) {
    Instruction* from = op->operand(0);
    if (from->shape().num_elements() == op->shape().num_elements()) return true;
    // The dims that have changed against the original, by side: set the product on the side that
    // has not.
    auto ratio = [&](Instruction* x) {
      return std::pair(x->shape().num_elements_constant(), original_[x].num_elements_constant());
    };
    const auto [now, before] = ratio(from);
    const auto [to_now, to_before] = ratio(op);
    Instruction* behind = to_now == to_before ? op : now == before ? from : nullptr;
    if (behind == nullptr || before == 0) return false;
    const int64_t target = behind == op ? now : to_now;
    // The innermost dim that makes the product right and isn't decided yet.
    for (int64_t d = 0; d < behind->shape().rank(); ++d) {
      const int64_t size = behind->shape().constant_dim(d);
      if (size <= 1 || behind->shape().num_elements_constant() == 0) continue;
      const int64_t others = behind->shape().num_elements_constant() / size;
      if (target % others != 0 || target / others == size ||
          assigned_.contains(classes_.Class(behind, 0, d)))
        continue;
      return Assign(behind, 0, d, target / others, more);
    }
    return false;
  }

  bool Follow(Instruction* op, bool* more) {
    if (op->opcode() == Opcode::kParameter || op->opcode() == Opcode::kConstant ||
        op->opcode() == Opcode::kBroadcast)
      return true;
    if (op->opcode() == Opcode::kReshape || op->opcode() == Opcode::kBitcast)
      return FollowReshape(op, more);
    absl::StatusOr<Shape> inferred =
        InferShape(op->opcode(), op->operands(), op->attrs(), &op->shape());
    if (!inferred.ok()) return *more;  // sizes are still on their way; the last round tells
    const std::vector<Shape> want = FlattenShape(*inferred), have = FlattenShape(op->shape());
    if (want.size() != have.size()) return false;
    for (size_t l = 0; l < want.size(); ++l) {
      if (want[l].rank() != have[l].rank()) return false;
      for (int64_t d = 0; d < want[l].rank(); ++d) {
        if (want[l].dim(d) == have[l].dim(d)) continue;
        if (!want[l].dim(d).is_constant() || !Assign(op, l, d, want[l].dim(d).constant(), more))
          return false;
      }
    }
    return true;
  }

  Module* module_;
  DimUnion classes_;
  absl::flat_hash_map<int, int64_t> assigned_;
  absl::flat_hash_map<const Instruction*, Shape> original_;
};

}  // namespace

Literal CutTo(const Literal& literal, const Shape& shape, bool trailing) {
  if (shape.is_tuple()) {
    std::vector<Literal> elements;
    for (size_t i = 0; i < shape.elements().size(); ++i) {
      elements.push_back(
          CutTo(literal.elements()[i], shape.element(static_cast<int64_t>(i)), trailing));
    }
    return Literal::Tuple(std::move(elements));
  }
  if (Shape::SameDims(literal.shape(), shape)) return literal;
  Literal result(Shape::Array(shape.element_type(), shape.constant_dims()));
  const std::vector<int64_t> to = shape.constant_dims(), from = literal.shape().constant_dims();
  const int64_t width = ByteWidth(shape.element_type()), n = result.num_elements();
  if (literal.num_elements() == 0 || n == 0) return result;
  std::byte* out = result.mutable_bytes();
  std::vector<int64_t> index(to.size(), 0);
  for (int64_t i = 0; i < n; ++i) {
    int64_t offset = 0;
    for (size_t d = 0; d < to.size(); ++d) {
      const int64_t shift = trailing && from[d] > to[d] ? from[d] - to[d] : 0;
      offset = offset * from[d] + (index[d] + shift) % from[d];
    }
    std::memcpy(out + i * width, literal.bytes() + offset * width, static_cast<size_t>(width));
    for (size_t d = to.size(); d-- > 0 && ++index[d] == to[d];) index[d] = 0;
  }
  return result;
}

std::vector<DimClass> DimClasses(const Module& module) {
  DimUnion classes(module);
  absl::flat_hash_map<const Instruction*, Position> where;
  const std::vector<Computation*> computations = module.computations();
  for (size_t c = 0; c < computations.size(); ++c) {
    const std::vector<Instruction*> all = computations[c]->instructions();
    for (size_t i = 0; i < all.size(); ++i) where[all[i]] = {c, i};
  }
  absl::flat_hash_map<int, DimClass> found;
  for (size_t n = 0; n < classes.nodes().size(); ++n) {
    const DimUnion::Node& node = classes.nodes()[n];
    if (node.size <= 1) continue;
    DimClass& c = found
                      .try_emplace(classes.Find(static_cast<int>(n)),
                                   DimClass{node.size, 0, where.at(node.op), node.leaf, node.dim})
                      .first->second;
    ++c.members;
  }
  std::vector<std::pair<int, DimClass>> sorted(found.begin(), found.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    const int64_t x = a.second.size * a.second.members, y = b.second.size * b.second.members;
    return x != y ? x > y : a.first < b.first;
  });
  std::vector<DimClass> result;
  for (auto& [number, c] : sorted) result.push_back(c);
  return result;
}

std::optional<Case> Resized(const Case& original, absl::Span<const DimClass> which, int64_t size,
                            bool trailing) {
  Case c = original.Clone();
  for (const Computation* computation : c.module->computations()) {
    for (const Instruction* op : computation->instructions()) {
      for (const Shape& leaf : FlattenShape(op->shape())) {
        if (leaf.is_array() && !leaf.is_static()) return std::nullopt;
      }
    }
  }
  if (!Resizer(c.module.get()).Run(which, size)) return std::nullopt;
  for (Computation* computation : c.module->computations()) {
    for (Instruction* op : computation->instructions()) {
      if (op->has_literal()) op->set_literal(CutTo(op->literal(), op->shape(), trailing));
    }
  }
  for (const Instruction* p : c.module->entry()->parameters()) {
    Literal& argument = c.arguments[p->parameter_number()];
    argument = CutTo(argument, p->shape(), trailing);
  }
  c.module->entry_layout.reset();
  return c;
}

bool Reinfer(Module* module) {
  for (Computation* c : module->computations()) {
    for (Instruction* op : c->PostOrder()) {
      if (op->opcode() == Opcode::kParameter || op->opcode() == Opcode::kConstant) continue;
      absl::StatusOr<Shape> inferred =
          InferShape(op->opcode(), op->operands(), op->attrs(), &op->shape());
      if (!inferred.ok()) return false;
      if (Shape::Compatible(*inferred, op->shape())) continue;
      const bool keeps_layout =
          inferred->is_array() && op->shape().is_array() && inferred->rank() == op->shape().rank();
      Shape shape = *inferred;
      if (keeps_layout && op->shape().has_layout()) shape.set_layout(op->shape().minor_to_major());
      op->mutable_shape() = shape;
    }
  }
  return true;
}

}  // namespace tenon::lab
