#include "tools/lab/reduce_dims.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "absl/container/flat_hash_map.h"
#include "hlo/infer/infer.h"

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

// Union-find over the dims of all leaves of all instructions.
class Classes {
 public:
  explicit Classes(const Module& module) {
    for (const Computation* c : module.computations()) {
      for (const Instruction* op : c->PostOrder()) Number(op);
    }
    for (const Computation* c : module.computations()) {
      for (const Instruction* op : c->PostOrder()) LinkOp(*op);
    }
  }

  int Class(const Instruction* op, size_t leaf, int64_t dim) {
    return Find(first_.at(op)[leaf] + static_cast<int>(dim));
  }
  struct Node {
    const Instruction* op;
    size_t leaf;
    int64_t dim, size;
  };
  const std::vector<Node>& nodes() const { return nodes_; }
  int Find(int n) {
    while (parent_[n] != n) n = parent_[n] = parent_[parent_[n]];
    return n;
  }

 private:
  void Number(const Instruction* op) {
    std::vector<int>& first = first_[op];
    const std::vector<Shape> leaves = FlattenShape(op->shape());
    for (size_t l = 0; l < leaves.size(); ++l) {
      first.push_back(static_cast<int>(nodes_.size()));
      for (int64_t d = 0; d < leaves[l].rank(); ++d) {
        parent_.push_back(static_cast<int>(nodes_.size()));
        nodes_.push_back({op, l, d, leaves[l].dim(d).constant_or(-1)});
      }
    }
  }

  void Link(const Instruction* a, size_t leaf_a, int64_t i, const Instruction* b, size_t leaf_b,
            int64_t j) {
    const int x = Class(a, leaf_a, i), y = Class(b, leaf_b, j);
    if (nodes_[x].size == nodes_[y].size) parent_[std::max(x, y)] = std::min(x, y);
  }
  void Link(const Instruction* a, int64_t i, const Instruction* b, int64_t j) {
    Link(a, 0, i, b, 0, j);
  }

  void LinkLeaves(const Instruction* a, size_t from_a, const Instruction* b, size_t from_b,
                  size_t count) {
    const std::vector<Shape> x = FlattenShape(a->shape()), y = FlattenShape(b->shape());
    for (size_t l = 0; l < count && from_a + l < x.size() && from_b + l < y.size(); ++l) {
      for (int64_t d = 0; d < std::min(x[from_a + l].rank(), y[from_b + l].rank()); ++d)
        Link(a, from_a + l, d, b, from_b + l, d);
    }
  }
  void LinkWhole(const Instruction* a, const Instruction* b) {
    LinkLeaves(a, 0, b, 0, FlattenShape(a->shape()).size());
  }
  // Dims of one place and one size.
  void LinkEqual(const Instruction* a, const Instruction* b) {
    for (int64_t d = 0; a->shape().is_array() && b->shape().is_array() &&
                        d < std::min(a->shape().rank(), b->shape().rank());
         ++d) {
      if (a->shape().dim(d) == b->shape().dim(d)) Link(a, d, b, d);
    }
  }

  void LinkCall(const Instruction& op, const Computation* callee, int64_t first_operand,
                int64_t first_parameter) {
    for (int64_t k = 0; first_operand + k < op.operand_count(); ++k) {
      if (first_parameter + k >= static_cast<int64_t>(callee->parameters().size())) break;
      LinkWhole(op.operand(first_operand + k), callee->parameter(first_parameter + k));
    }
  }

  // Neighbouring dims with equal products on both sides; only single dims on both sides are one
  // dim.
  void LinkReshape(const Instruction& op) {
    const Shape &from = op.operand(0)->shape(), &to = op.shape();
    int64_t i = 0, j = 0;
    while (i < from.rank() && j < to.rank()) {
      const int64_t i0 = i, j0 = j;
      int64_t a = from.constant_dim(i++), b = to.constant_dim(j++);
      while (a != b && i <= from.rank() && j <= to.rank()) {
        if (a < b && i < from.rank()) {
          a *= from.constant_dim(i++);
        } else if (b < a && j < to.rank()) {
          b *= to.constant_dim(j++);
        } else {
          return;
        }
      }
      if (i - i0 == 1 && j - j0 == 1) Link(op.operand(0), i0, &op, j0);
    }
  }

  void LinkDot(const Instruction& op) {
    const Instruction *lhs = op.operand(0), *rhs = op.operand(1);
    const auto lb = op.int_list(Attr::kLhsBatchDims), rb = op.int_list(Attr::kRhsBatchDims);
    const auto lc = op.int_list(Attr::kLhsContractingDims),
               rc = op.int_list(Attr::kRhsContractingDims);
    auto has = [](const std::vector<int64_t>& list, int64_t d) {
      return std::find(list.begin(), list.end(), d) != list.end();
    };
    int64_t out = 0;
    for (size_t k = 0; k < lb.size() && k < rb.size(); ++k, ++out)
      Link(lhs, lb[k], rhs, rb[k]), Link(lhs, lb[k], &op, out);
    for (size_t k = 0; k < lc.size() && k < rc.size(); ++k) Link(lhs, lc[k], rhs, rc[k]);
    for (int64_t d = 0; d < lhs->shape().rank(); ++d) {
      if (!has(lb, d) && !has(lc, d) && out < op.shape().rank()) Link(lhs, d, &op, out++);
    }
    for (int64_t d = 0; d < rhs->shape().rank(); ++d) {
      if (!has(rb, d) && !has(rc, d) && out < op.shape().rank()) Link(rhs, d, &op, out++);
    }
  }

  void LinkGather(const Instruction& op) {
    const auto offset = op.int_list(Attr::kOffsetDims),
               collapsed = op.int_list(Attr::kCollapsedSliceDims);
    const auto batching = op.int_list(Attr::kOperandBatchingDims),
               sizes = op.int_list(Attr::kSliceSizes);
    auto has = [](const std::vector<int64_t>& list, int64_t d) {
      return std::find(list.begin(), list.end(), d) != list.end();
    };
    const Shape& from = op.operand(0)->shape();
    size_t next = 0;
    for (int64_t d = 0; d < from.rank(); ++d) {
      if (has(collapsed, d) || has(batching, d)) continue;
      if (next < offset.size() && from.dim(d) == Dim(sizes[d]))
        Link(op.operand(0), d, &op, offset[next]);
      ++next;
    }
    int64_t index = 0;
    for (int64_t d = 0; d < op.shape().rank(); ++d) {
      if (has(offset, d)) continue;
      if (index == op.attrs().get_or<int64_t>(Attr::kIndexVectorDim, 0)) ++index;
      if (index < op.operand(1)->shape().rank()) Link(op.operand(1), index++, &op, d);
    }
  }

  void LinkReduce(const Instruction& op) {
    const int64_t n = op.operand_count() / 2;
    for (int64_t k = 1; k < n; ++k) LinkWhole(op.operand(0), op.operand(k));
    int64_t out = 0;
    for (int64_t d = 0; d < op.operand(0)->shape().rank(); ++d) {
      const auto& dims = op.dimensions();
      if (std::find(dims.begin(), dims.end(), d) != dims.end()) continue;
      for (size_t l = 0; l < first_.at(&op).size(); ++l) Link(op.operand(0), 0, d, &op, l, out);
      ++out;
    }
  }

  void LinkOp(const Instruction& op) {
    switch (op.opcode()) {
      case Opcode::kParameter:
      case Opcode::kConstant:
      case Opcode::kIota:
      case Opcode::kRng:
        return;
      case Opcode::kBroadcast:
        for (int64_t d = 0; d < op.operand(0)->shape().rank(); ++d)
          Link(op.operand(0), d, &op, op.dimensions()[d]);
        return;
      case Opcode::kTranspose:
        for (int64_t d = 0; d < op.shape().rank(); ++d)
          Link(op.operand(0), op.dimensions()[d], &op, d);
        return;
      case Opcode::kReshape:
      case Opcode::kBitcast:
        if (op.shape().is_static() && op.operand(0)->shape().is_static()) LinkReshape(op);
        return;
      case Opcode::kReduce:
        return LinkReduce(op);
      case Opcode::kDot:
        return LinkDot(op);
      case Opcode::kGather:
        return LinkGather(op);
      case Opcode::kConcatenate:
        for (const Instruction* o : op.operands()) {
          for (int64_t d = 0; d < op.shape().rank(); ++d) {
            if (d != op.dimensions()[0]) Link(o, d, &op, d);
          }
        }
        return;
      case Opcode::kPad:
        for (int64_t d = 0; d < op.shape().rank(); ++d) {
          if (op.attrs().get<PaddingConfig>(Attr::kPadding).dims[d] == PaddingDim{})
            Link(op.operand(0), d, &op, d);
        }
        return;
      case Opcode::kDynamicUpdateSlice:
        LinkWhole(op.operand(0), &op);
        LinkEqual(op.operand(1), &op);
        return;
      case Opcode::kTuple: {
        size_t leaf = 0;
        for (const Instruction* o : op.operands()) {
          const size_t n = FlattenShape(o->shape()).size();
          LinkLeaves(&op, leaf, o, 0, n);
          leaf += n;
        }
        return;
      }
      case Opcode::kGetTupleElement: {
        size_t leaf = 0;
        for (int64_t k = 0; k < op.tuple_index(); ++k)
          leaf += FlattenShape(op.operand(0)->shape().element(k)).size();
        LinkLeaves(op.operand(0), leaf, &op, 0, FlattenShape(op.shape()).size());
        return;
      }
      case Opcode::kWhile:
        LinkWhole(op.operand(0), &op);
        for (Attr a : {Attr::kBody, Attr::kCondition})
          LinkCall(op, op.attrs().get<Computation*>(a), 0, 0);
        LinkWhole(&op, op.attrs().get<Computation*>(Attr::kBody)->root());
        return;
      case Opcode::kConditional: {
        int64_t k = 1;
        for (const Computation* branch : op.called_computations()) {
          LinkCall(op, branch, k++, 0);
          LinkWhole(&op, branch->root());
        }
        return;
      }
      case Opcode::kCall:
      case Opcode::kFusion:
        for (const Computation* callee : op.called_computations()) {
          LinkCall(op, callee, 0, 0);
          LinkWhole(&op, callee->root());
        }
        return;
      case Opcode::kRngBitGenerator:
        LinkLeaves(&op, 0, op.operand(0), 0, 1);
        return;
      case Opcode::kSort: {
        size_t leaf = 0;
        for (const Instruction* o : op.operands()) {
          LinkWhole(op.operand(0), o);
          LinkLeaves(&op, leaf++, o, 0, 1);
        }
        return;
      }
      case Opcode::kScatter:
        LinkWhole(op.operand(0), &op);
        return;
      default:
        // Elementwise ops, copies and the like want equal dims; of others, equal ones are mostly
        // the same.
        for (const Instruction* o : op.operands()) {
          if (op.shape().is_tuple() || o->shape().is_tuple()) {
            LinkWhole(o, &op);
          } else {
            LinkEqual(o, &op);
          }
        }
    }
  }

  std::vector<Node> nodes_;
  std::vector<int> parent_;
  absl::flat_hash_map<const Instruction*, std::vector<int>> first_;
};

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
    for (const Classes::Node& node : classes_.nodes()) {
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
      std::vector<int64_t> sizes = op->int_list(Attr::kSliceSizes);
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
  Classes classes_;
  absl::flat_hash_map<int, int64_t> assigned_;
  absl::flat_hash_map<const Instruction*, Shape> original_;
};

// The elements of `literal` that a smaller (or larger: repeated) shape has.
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

}  // namespace

std::vector<DimClass> DimClasses(const Module& module) {
  Classes classes(module);
  absl::flat_hash_map<const Instruction*, Position> where;
  const std::vector<Computation*> computations = module.computations();
  for (size_t c = 0; c < computations.size(); ++c) {
    const std::vector<Instruction*> all = computations[c]->instructions();
    for (size_t i = 0; i < all.size(); ++i) where[all[i]] = {c, i};
  }
  absl::flat_hash_map<int, DimClass> found;
  for (size_t n = 0; n < classes.nodes().size(); ++n) {
    const Classes::Node& node = classes.nodes()[n];
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
