#include "tools/lab/reduce/dim_union.h"

#include <algorithm>

namespace tenon::lab {

// Makes a node per dim, then links those that an op wants equal.
class DimLinker {
 public:
  explicit DimLinker(DimUnion* made)
      : union_(*made), nodes_(made->nodes_), parent_(made->parent_), first_(made->first_) {}

  void Run(const Module& module) {
    for (const Computation* c : module.computations()) {
      for (const Instruction* op : c->PostOrder()) Number(op);
    }
    for (const Computation* c : module.computations()) {
      for (const Instruction* op : c->PostOrder()) LinkOp(*op);
    }
  }

 private:
  int Class(const Instruction* op, size_t leaf, int64_t dim) { return union_.Class(op, leaf, dim); }

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
    const auto batching = op.int_list(Attr::kOperandBatchingDims);
    const std::vector<Dim> sizes = op.dim_list(Attr::kSliceSizes);
    auto has = [](const std::vector<int64_t>& list, int64_t d) {
      return std::find(list.begin(), list.end(), d) != list.end();
    };
    const Shape& from = op.operand(0)->shape();
    size_t next = 0;
    for (int64_t d = 0; d < from.rank(); ++d) {
      if (has(collapsed, d) || has(batching, d)) continue;
      if (next < offset.size() && from.dim(d) == sizes[d])
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

  DimUnion& union_;
  std::vector<DimUnion::Node>& nodes_;
  std::vector<int>& parent_;
  absl::flat_hash_map<const Instruction*, std::vector<int>>& first_;
};

DimUnion::DimUnion(const Module& module) { DimLinker(this).Run(module); }

int DimUnion::Find(int n) {
  while (parent_[n] != n) n = parent_[n] = parent_[parent_[n]];
  return n;
}

}  // namespace tenon::lab
