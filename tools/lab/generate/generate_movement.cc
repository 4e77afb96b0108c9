// Movement rows: every value may be moved, exact or not.
#include <algorithm>

#include "tools/lab/generate/generator.h"

namespace tenon::lab {
namespace {

bool Keep(Scope& s, Instruction* op, const Value& from) {
  if (op == nullptr) return false;
  s.Moved(op, from);
  return true;
}

// A factor of dims[at] becomes a dim of its own: a small prime, or one of the sizes that a product of symbols is of.
void Split(Random& random, std::vector<Dim>* dims, int64_t at) {
  Dim& d = (*dims)[at];
  const DimExpr* e = d.expr();
  if (e != nullptr && e->kind == DimExpr::Kind::kProduct && random.OneIn(2)) {
    const Dim f = e->operands[0];
    Dim rest = 1;
    for (size_t k = 1; k < e->operands.size(); ++k) rest *= e->operands[k];
    d = rest;
    dims->insert(dims->begin() + at + random.Below(2), f);
    return;
  }
  for (int64_t f : {2, 3, 5, 7}) {
    if (Divides(f, d) != Ternary::kYes) continue;
    d = FloorDiv(d, f);
    dims->insert(dims->begin() + at + random.Below(2), f);
    return;
  }
}

// The dims with factors moved between neighbours, merged, split, or ones put in.
std::vector<Dim> Refactored(Random& random, std::vector<Dim> dims) {
  for (int64_t n = random.Between(1, 3); n > 0; --n) {
    const int64_t rank = static_cast<int64_t>(dims.size());
    const int64_t at = random.Below(rank + 1);
    switch (random.Below(3)) {
      case 0:
        if (rank < 6) dims.insert(dims.begin() + at, 1);
        break;
      case 1:
        if (at + 1 < rank) {
          dims[at] *= dims[at + 1];
          dims.erase(dims.begin() + at + 1);
        }
        break;
      default:
        if (at < rank && rank < 6 && dims[at].constant_or(2) > 1) Split(random, &dims, at);
    }
  }
  return dims;
}

bool Reshape(Scope& s, Opcode opcode) {
  const Value x = s.Any();
  const std::vector<Dim> dims = Refactored(s.random(), x.dims());
  return Keep(s, s.Try(opcode, {x.op}, {}, Shape(x.type(), dims)), x);
}

// A bitcast is a reshape of memory: dims may change freely, or dims and layout change together.
bool Bitcast(Scope& s, Opcode opcode) {
  const Value x = s.Any();
  if (x.rank() > 1 && s.g().options.layouts && s.random().OneIn(2)) {
    const std::vector<int64_t> order = Shuffled(s.random(), x.rank());  // result dim i is operand dim order[i]
    std::vector<Dim> dims;
    for (int64_t d : order) dims.push_back(x.op->shape().dim(d));
    std::vector<int64_t> layout;
    for (int64_t d : x.op->shape().minor_to_major()) {
      layout.push_back(std::find(order.begin(), order.end(), d) - order.begin());
    }
    return Keep(s, s.Try(opcode, {x.op}, {}, Shape(x.type(), dims, layout)), x);
  }
  const std::vector<Dim> dims = Refactored(s.random(), x.dims());
  return Keep(s, s.Try(opcode, {x.op}, {}, Shape(x.type(), dims)), x);
}

bool Broadcast(Scope& s, Opcode opcode) {
  const Value x = s.Any();
  const int64_t rank = x.rank() + s.random().Between(0, std::max<int64_t>(0, 5 - x.rank()));
  std::vector<Dim> dims(rank);
  for (Dim& d : dims) d = s.random().OneIn(2) ? s.Size() : Dim(s.random().Between(1, 4));
  const std::vector<int64_t> to = s.random().OneIn(3) ? Shuffled(s.random(), rank) : Subset(s.random(), rank, x.rank());
  std::vector<int64_t> dimensions(to.begin(), to.begin() + x.rank());
  for (int64_t i = 0; i < x.rank(); ++i) dims[dimensions[i]] = x.dim(i);
  return Keep(s, s.Try(opcode, {x.op}, With(Attr::kDimensions, dimensions), Shape(x.type(), dims)), x);
}

bool Concatenate(Scope& s, Opcode opcode) {
  const Value x = s.Any();
  if (x.rank() == 0) return false;
  const int64_t dim = s.random().Below(x.rank());
  std::vector<Instruction*> operands = {x.op};
  Value all = x;
  for (int64_t n = s.random().Between(1, 3); n > 0; --n) {
    std::vector<Dim> dims = x.dims();
    if (s.random().OneIn(2)) dims[dim] = s.random().OneIn(2) ? s.Size() : Dim(s.random().Below(4));
    const Value y = s.random().OneIn(5) ? x : s.Shaped(x.type(), s.Fits(dims) ? dims : x.dims());
    all = {y.op, all.exact && y.exact, std::max(all.small, y.small), all.moved && y.moved};
    operands.insert(operands.begin() + s.random().Below(operands.size() + 1), y.op);
  }
  return Keep(s, s.Try(opcode, operands, With(Attr::kDimensions, std::vector<int64_t>{dim})), all);
}

bool Constant(Scope& s, Opcode) {
  const PrimitiveType type = s.Type();
  s.Constant(type, s.Dims());
  return true;
}

bool Copy(Scope& s, Opcode opcode) {
  const Value x = s.Any();
  Instruction* y = s.Try(opcode, {x.op});
  if (y != nullptr && x.rank() > 1 && s.g().options.layouts && s.random().OneIn(2)) {
    y->mutable_shape().set_layout(Shuffled(s.random(), x.rank()));
  }
  return Keep(s, y, x);
}

bool DynamicReshape(Scope& s, Opcode opcode) {
  const Value x = s.Any();
  const std::vector<Dim> dims = Refactored(s.random(), x.dims());
  if (std::any_of(dims.begin(), dims.end(), [](const Dim& d) { return !d.is_constant(); })) return false;  // a size of it is an s32's value
  std::vector<Instruction*> operands = {x.op};
  for (const Dim& d : dims) operands.push_back(s.b().ScalarConstantInt(PrimitiveType::kS32, d.constant()));
  if (dims.empty()) return false;
  return Keep(s, s.Try(opcode, operands, {}, Shape(x.type(), dims)), x);
}

// An array of which only a part exists, at sizes known when it runs; its size, or a reduction of what exists.
bool SetDimensionSize(Scope& s, Opcode) {
  const Value x = s.OfRank(1, 4, [](PrimitiveType t) { return (IsIntegral(t) && BitWidth(t) >= 8) || (IsFloat(t) && BitWidth(t) >= 16); });
  const int64_t dim = s.random().Below(x.rank());
  if (!x.dim(dim).is_constant()) return false;
  const int64_t bound = x.dim(dim).constant();
  Builder& b = s.b();
  Instruction* size = b.ScalarConstantInt(PrimitiveType::kS32, s.random().Between(0, bound));
  if (s.random().OneIn(2)) {
    Instruction* low = b.ScalarConstantInt(PrimitiveType::kS32, 0);
    Instruction* high = b.ScalarConstantInt(PrimitiveType::kS32, bound);
    size = b.Clamp(low, s.Scalar(PrimitiveType::kS32).op, high);
  }
  const Attributes at = With(Attr::kDimensions, std::vector<int64_t>{dim});
  Instruction* y = s.Try(Opcode::kSetDimensionSize, {x.op, size}, at);
  if (y == nullptr) return false;
  if (s.random().OneIn(3)) y = b.Unary(Opcode::kNegate, y);
  if (s.random().OneIn(3)) {
    s.Add(b.Make(Opcode::kGetDimensionSize, {y}, at));
    return true;
  }
  const Opcode by = s.random().OneIn(2) || IsFloat(x.type()) ? Opcode::kMaximum : Opcode::kAdd;
  s.Add(b.Reduce(y, s.Constant(x.type(), {}).op, {dim}, by));
  return true;
}

bool GetDimensionSize(Scope& s, Opcode opcode) {
  const Value x = s.Any();
  if (x.rank() == 0) return false;
  s.Add(s.b().Make(opcode, {x.op}, With(Attr::kDimensions, std::vector<int64_t>{s.random().Below(x.rank())})));
  return true;
}

bool Iota(Scope& s, Opcode) {
  PrimitiveType type = s.Type([](PrimitiveType t) { return t != PrimitiveType::kPred; });
  const std::vector<Dim> dims = s.Dims(1, 4);
  const int64_t dim = s.random().Below(dims.size());
  const double most = std::max(0.0, s.Most(dims[dim]) - 1);
  if (!CountsTo(type, most)) type = PrimitiveType::kF32;
  s.Add(s.b().Iota(Shape(type, dims), dim), true, IsFloat(type) ? most : kNotSmall, true);
  return true;
}

bool Pad(Scope& s, Opcode opcode) {
  const Value x = s.Any();
  const Value fill = s.Scalar(x.type());
  PaddingConfig config;
  for (int64_t d = 0; d < x.rank(); ++d) {
    PaddingDim p;
    if (!s.random().OneIn(3)) {
      p.low = s.random().Between(-2, 3);
      p.high = s.random().Between(-2, 3);
      p.interior = s.random().OneIn(3) ? s.random().Between(1, 2) : 0;
    }
    config.dims.push_back(p);
  }
  const Value all{x.op, x.exact && fill.exact, std::max(x.small, fill.small), x.moved && fill.moved};
  return Keep(s, s.Try(opcode, {x.op, fill.op}, With(Attr::kPadding, config)), all);
}

bool Reverse(Scope& s, Opcode opcode) {
  const Value x = s.Any();
  if (x.rank() == 0) return false;
  const int64_t count = s.random().Between(1, x.rank());
  return Keep(s, s.Try(opcode, {x.op}, With(Attr::kDimensions, Subset(s.random(), x.rank(), count))), x);
}

bool Slice(Scope& s, Opcode opcode) {
  const Value x = s.Any();
  SliceSpec spec;
  for (int64_t d = 0; d < x.rank(); ++d) {
    const Dim size = x.dim(d);
    const int64_t least = Scope::Least(size);
    const bool whole = s.random().OneIn(3);
    const int64_t start = whole ? 0 : s.random().Between(0, least);
    Dim limit = whole ? size : Dim(s.random().Between(start, least));
    if (limit == Dim(start) && least > start && !s.random().OneIn(12)) limit = start + 1;
    // As many before the end.
    if (!whole && !size.is_constant() && s.random().OneIn(2)) limit = size - (Dim(least) - limit);
    spec.starts.push_back(start);
    spec.limits.push_back(limit);
    spec.strides.push_back(s.random().OneIn(3) ? s.random().Between(1, 3) : 1);
  }
  return Keep(s, s.Try(opcode, {x.op}, With(Attr::kSlice, spec)), x);
}

bool Transpose(Scope& s, Opcode opcode) {
  const Value x = s.Any();
  return Keep(s, s.Try(opcode, {x.op}, With(Attr::kDimensions, Shuffled(s.random(), x.rank()))), x);
}

constexpr Row kRows[] = {
    {Opcode::kBitcast, Bitcast},
    {Opcode::kBroadcast, Broadcast},
    {Opcode::kConcatenate, Concatenate},
    {Opcode::kConstant, Constant},
    {Opcode::kCopy, Copy},
    {Opcode::kDynamicReshape, DynamicReshape},
    {Opcode::kGetDimensionSize, GetDimensionSize},
    {Opcode::kIota, Iota},
    {Opcode::kPad, Pad},
    {Opcode::kReshape, Reshape},
    {Opcode::kReverse, Reverse},
    {Opcode::kSetDimensionSize, SetDimensionSize},
    {Opcode::kSlice, Slice},
    {Opcode::kTranspose, Transpose},
};

}  // namespace

absl::Span<const Row> MovementRows() { return kRows; }

}  // namespace tenon::lab
