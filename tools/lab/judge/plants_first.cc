// The first ten planted bugs.
#include <limits>
#include <optional>

#include "absl/container/flat_hash_set.h"
#include "hlo/builder.h"
#include "tools/lab/judge/plants.h"

namespace tenon::lab {
namespace {

bool IsSquare(const Shape& shape) {
  const int64_t rank = shape.rank();
  return rank >= 2 && shape.is_static() && shape.constant_dim(rank - 1) == shape.constant_dim(rank - 2);
}

// Replaces operand k of `op` by what `make` makes of it.
template <typename Make>
bool WithOperand(Instruction& op, int64_t k, Make&& make) {
  Builder b(op.parent());
  op.ReplaceOperand(k, make(b, op.operand(k)));
  return true;
}

bool TailMask(Instruction& op) {
  if (!IsFloatReduce(op, Opcode::kAdd)) return false;
  const Shape& shape = op.operand(0)->shape();
  const int64_t last = shape.rank() - 1, n = last < 0 ? 0 : shape.constant_dim(last);
  if (n <= 8 || n % 8 == 0 || op.dimensions().back() != last) return false;
  op.ReplaceOperand(0, Where(op.operand(0), last, "LT", n / 8 * 8, 0));
  return true;
}

bool ReduceInit(Instruction& op) {
  if (!IsFloatReduce(op, Opcode::kMaximum)) return false;
  return WithOperand(op, 1, [](Builder& b, Instruction* init) {
    return b.Binary(Opcode::kMaximum, init, b.ScalarConstant(init->shape().element_type(), 0x1p-14));
  });
}

bool BroadcastDim(Instruction& op) {
  if (op.opcode() != Opcode::kBroadcast || !IsSquare(op.shape()) || op.dimensions().empty()) return false;
  std::vector<int64_t> dims = op.dimensions();
  const int64_t rank = op.shape().rank();
  if (dims.back() != rank - 1 || (dims.size() > 1 && dims[dims.size() - 2] == rank - 2)) return false;
  dims.back() = rank - 2;
  op.mutable_attrs().set(Attr::kDimensions, dims);
  return true;
}

// Whoever reads the old value after the update reads the new one.
bool AliasHazard(Module& module) {
  for (Computation* c : module.computations()) {
    const std::vector<Instruction*> order = c->instructions();
    for (size_t at = 0; at < order.size(); ++at) {
      Instruction* fusion = order[at];
      if (fusion->opcode() != Opcode::kFusion) continue;
      const Instruction* update = fusion->fused_computation()->root();
      if (update->opcode() != Opcode::kDynamicUpdateSlice || update->operand(0)->opcode() != Opcode::kParameter) continue;
      Instruction* old = fusion->operand(update->operand(0)->parameter_number());
      bool changed = false;
      for (size_t later = at + 1; later < order.size(); ++later) {
        if (order[later]->opcode() == Opcode::kTuple) continue;
        for (int64_t k = 0; k < order[later]->operand_count(); ++k) {
          if (order[later]->operand(k) == old) order[later]->ReplaceOperand(k, fusion), changed = true;
        }
      }
      if (changed) return true;
    }
  }
  return false;
}

bool NanMax(Instruction& op) {
  if (!IsFloatReduce(op, Opcode::kMaximum)) return false;
  return WithOperand(op, 0, [](Builder& b, Instruction* x) {
    return b.Select(b.Compare(x, x, "EQ"), x, b.FullLike(x, -std::numeric_limits<double>::infinity()));
  });
}

bool PadOffByOne(Instruction& op) {
  if (op.opcode() != Opcode::kPad) return false;
  PaddingConfig padding = op.attrs().get<PaddingConfig>(Attr::kPadding);
  for (PaddingDim& d : padding.dims) {
    if (d.high >= 0 || d.interior != 0) continue;
    --d.low, ++d.high;
    op.mutable_attrs().set(Attr::kPadding, padding);
    return true;
  }
  return false;
}

bool UnsignedCompare(Instruction& op) {
  if (op.opcode() != Opcode::kCompare) return false;
  PrimitiveType to;
  switch (op.operand(0)->shape().element_type()) {
    case PrimitiveType::kU8: to = PrimitiveType::kS8; break;
    case PrimitiveType::kU16: to = PrimitiveType::kS16; break;
    case PrimitiveType::kU32: to = PrimitiveType::kS32; break;
    case PrimitiveType::kU64: to = PrimitiveType::kS64; break;
    default: return false;
  }
  const std::string& direction = op.comparison_direction();
  if (direction == "EQ" || direction == "NE") return false;
  Builder b(op.parent());
  Redirect(&op, b.Compare(b.BitcastConvert(op.operand(0), to), b.BitcastConvert(op.operand(1), to), direction));
  return true;
}

bool GatherClamp(Instruction& op) {
  if (op.opcode() != Opcode::kGather || op.int_list(Attr::kStartIndexMap).size() != 1) return false;
  const int64_t dim = op.int_list(Attr::kStartIndexMap)[0];
  const int64_t last = op.operand(0)->shape().constant_dim(dim) - op.dim_list(Attr::kSliceSizes)[dim].constant();
  if (last < 1 || last > 100) return false;
  return WithOperand(op, 1, [&](Builder& b, Instruction* i) {
    return b.Binary(Opcode::kMinimum, i, b.FullLike(i, static_cast<double>(last - 1)));
  });
}

bool CseRng(Module& module) {
  for (Computation* c : module.computations()) {
    std::vector<Instruction*> draws;
    for (Instruction* i : c->instructions()) {
      if (i->opcode() == Opcode::kRng) draws.push_back(i);
    }
    for (size_t second = 1; second < draws.size(); ++second) {
      for (size_t first = 0; first < second; ++first) {
        const bool same = Instruction::IdenticalIgnoringOperands(*draws[first], *draws[second]) &&
                          Instruction::Identical(*draws[first]->operand(0), *draws[second]->operand(0)) &&
                          Instruction::Identical(*draws[first]->operand(1), *draws[second]->operand(1));
        if (!same || draws[second]->user_count() == 0) continue;
        draws[second]->ReplaceAllUsesWith(draws[first]);
        return true;
      }
    }
  }
  return false;
}

bool StaleLayout(Instruction& op) {
  if (op.opcode() != Opcode::kParameter || !op.shape().is_array() || !IsSquare(op.shape()) || op.user_count() == 0) return false;
  const int64_t rank = op.shape().rank();
  if (op.shape().constant_dim(rank - 1) < 2) return false;
  const DimVector strides = op.shape().strides();
  if (!(strides[rank - 2] == Dim(1))) return false;
  std::vector<int64_t> swapped(rank);
  for (int64_t d = 0; d < rank; ++d) swapped[d] = d;
  std::swap(swapped[rank - 1], swapped[rank - 2]);
  Builder b(op.parent());
  Instruction* transposed = b.Transpose(&op, swapped);
  transposed->mutable_shape() = op.shape();
  Redirect(&op, transposed);
  return true;
}

constexpr ModulePlant kPlants[] = {
    {"tail-mask", "what is left of a row after its last eight elements isn't added up", [](Module& m) { return OnFused(m, TailMask); }},
    {"reduce-init", "a float maximum starts at a small positive number", [](Module& m) { return OnFused(m, ReduceInit); }},
    {"broadcast-dim", "the minor dims of a square broadcast are swapped", [](Module& m) { return OnFused(m, BroadcastDim); }},
    {"alias-hazard", "an update is made in place of a value that is still read", AliasHazard},
    {"nan-max", "a maximum reduction drops NaN", [](Module& m) { return OnFused(m, NanMax); }},
    {"pad-off-by-one", "a pad with a negative high end is off by one at its low end", [](Module& m) { return OnFused(m, PadOffByOne); }},
    {"unsigned-compare", "unsigned integers are compared as signed ones", [](Module& m) { return OnFused(m, UnsignedCompare); }},
    {"gather-clamp", "a gather's indices are clamped one before the last", [](Module& m) { return OnFused(m, GatherClamp); }},
    {"cse-rng", "equal random draws are merged", CseRng},
    {"stale-layout", "a kernel takes a square column-major operand for a row-major one", [](Module& m) { return OnFused(m, StaleLayout); }},
};

}  // namespace

absl::Span<const ModulePlant> FirstPlants() { return kPlants; }

bool InFusions(Module& module, bool (*f)(Instruction& fusion, Computation& fused)) {
  bool changed = false;
  for (Computation* c : module.computations()) {
    for (Instruction* i : c->instructions()) {
      if (i->opcode() == Opcode::kFusion) changed |= f(*i, *i->fused_computation());
    }
  }
  return changed;
}

bool OnFused(Module& module, bool (*f)(Instruction& op)) {
  bool changed = false;
  for (Computation* c : module.computations()) {
    for (Instruction* i : c->instructions()) {
      if (i->opcode() != Opcode::kFusion) continue;
      for (Instruction* op : i->fused_computation()->instructions()) changed |= f(*op);
    }
  }
  return changed;
}

Instruction* Where(Instruction* x, int64_t dim, std::string_view direction, int64_t bound, double other) {
  Builder b(x->parent());
  Instruction* at = b.Iota(Shape::Array(PrimitiveType::kS32, x->shape().constant_dims()), dim);
  return b.Select(b.Compare(at, b.FullLike(at, static_cast<double>(bound)), direction), x, b.FullLike(x, other));
}

void Redirect(Instruction* x, Instruction* made) {
  const std::vector<Instruction*> users(x->users().begin(), x->users().end());
  absl::flat_hash_set<const Instruction*> inside;
  std::vector<const Instruction*> queue = {made};
  while (!queue.empty()) {
    const Instruction* i = queue.back();
    queue.pop_back();
    if (i == x || !inside.insert(i).second) continue;
    for (const Instruction* o : i->operands()) queue.push_back(o);
  }
  Computation* c = x->parent();
  for (Instruction* user : users) {
    if (inside.contains(user)) continue;
    for (int64_t k = 0; k < user->operand_count(); ++k) {
      if (user->operand(k) == x) user->ReplaceOperand(k, made);
    }
  }
  if (c->root() == x) c->set_root(made);
}

std::optional<Opcode> OpcodeOf(const Computation& region) {
  const Instruction* root = region.root();
  if (region.parameters().size() != 2 || root->operand_count() != 2) return std::nullopt;
  const bool both = (root->operand(0) == region.parameter(0) && root->operand(1) == region.parameter(1)) ||
                    (root->operand(0) == region.parameter(1) && root->operand(1) == region.parameter(0));
  return both ? std::optional<Opcode>(root->opcode()) : std::nullopt;
}

bool IsFloatReduce(const Instruction& op, Opcode by) {
  return op.opcode() == Opcode::kReduce && op.operand_count() == 2 && IsFloat(op.shape().element_type()) && !op.dimensions().empty() &&
         op.operand(0)->shape().is_static() && OpcodeOf(*op.to_apply()) == by;
}

}  // namespace tenon::lab
