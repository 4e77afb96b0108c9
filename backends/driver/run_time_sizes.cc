#include "backends/driver/run_time_sizes.h"

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "hlo/builder.h"
#include "passes/pass.h"

namespace tenon {
namespace {

bool IsStatic(const Shape& shape) {
  for (const Shape& leaf : FlattenShape(shape)) {
    if (leaf.is_array() && !leaf.is_static()) return false;
  }
  return true;
}

absl::Status RunPass(const char* name, Module& module) {
  PassContext context;
  return FindPass(name)->run(module, context).status();
}

// Its operands but the first are sizes.
bool TakesSizes(const Instruction& op) {
  return op.opcode() == Opcode::kSetDimensionSize || op.opcode() == Opcode::kDynamicReshape;
}

int64_t BoundOf(const Instruction& op, int64_t operand) {
  const int64_t dim = op.opcode() == Opcode::kSetDimensionSize ? op.dimensions()[0] : operand - 1;
  return op.shape().constant_dim(dim);
}

// Whether everything that `op` needs is of known size: static, or cut by constants.
class Cones {
 public:
  // Operands first, without recursion.
  bool Known(const Instruction* first) {
    std::vector<const Instruction*> left = {first};
    while (!left.empty()) {
      const Instruction* op = left.back();
      const size_t before = left.size();
      if (!known_.contains(op) && SizedByItself(*op)) {
        for (const Instruction* o : op->operands()) {
          if (!known_.contains(o)) left.push_back(o);
        }
        if (left.size() > before) continue;
      }
      left.pop_back();
      if (known_.contains(op)) continue;
      known_[op] = SizedByItself(*op) && absl::c_all_of(op->operands(), [&](const Instruction* o) { return known_.at(o); });
    }
    return known_.at(first);
  }

 private:
  static bool SizedByItself(const Instruction& op) {
    if (op.opcode() == Opcode::kParameter) return IsStatic(op.shape());
    for (int64_t i = 1; TakesSizes(op) && i < op.operand_count(); ++i) {
      if (op.operand(i)->opcode() != Opcode::kConstant) return false;
    }
    return true;
  }

  absl::flat_hash_map<const Instruction*, bool> known_;
};

}  // namespace

bool IsBounded(const Shape& shape) {
  return absl::c_any_of(FlattenShape(shape), [](const Shape& leaf) {
    for (int64_t d = 0; d < leaf.rank(); ++d) {
      if (leaf.is_dynamic(d)) return true;
    }
    return false;
  });
}

bool HasRunTimeSizes(const Computation& computation) {
  for (const Instruction* op : computation.instructions()) {
    if (IsBounded(op->shape()) || TakesSizes(*op)) return true;
  }
  return false;
}

absl::Status FixParameters(Module& module, absl::Span<const Shape> args) {
  for (Instruction* p : module.entry()->parameters()) {
    if (IsStatic(p->shape())) continue;
    Shape shape = args[p->parameter_number()];
    if (shape.is_tuple()) {
      return absl::UnimplementedError(absl::StrCat("parameter ", p->name(), ": a tuple of arrays with bounded dimensions"));
    }
    if (p->shape().has_layout()) shape.set_layout(p->shape().minor_to_major());
    p->mutable_shape() = std::move(shape);
  }
  module.entry_layout.reset();
  return RunPass("static-sizes", module);
}

absl::StatusOr<std::vector<Instruction*>> ReadySizes(const Module& module) {
  std::vector<Instruction*> ready;
  absl::flat_hash_set<const Instruction*> seen;
  Cones cones;
  const Instruction* unknown = nullptr;
  for (Instruction* op : module.entry()->instructions()) {
    if (op->IsStateful()) return absl::UnimplementedError(absl::StrCat("sizes known at run time beside ", op->ToString()));
    if (!TakesSizes(*op)) continue;
    unknown = op;
    for (int64_t i = 1; i < op->operand_count(); ++i) {
      Instruction* size = op->operand(i);
      if (size->opcode() == Opcode::kConstant || !cones.Known(size)) continue;
      if (seen.insert(size).second) ready.push_back(size);
    }
  }
  if (ready.empty()) {
    return absl::UnimplementedError(
        absl::StrCat("no size known before the run for ", unknown == nullptr ? module.name() : unknown->ToString()));
  }
  return ready;
}

absl::StatusOr<std::unique_ptr<Module>> SizesOf(const Module& module) {
  std::unique_ptr<Module> sizes = module.Clone();
  TENON_ASSIGN_OR_RETURN(const std::vector<Instruction*> ready, ReadySizes(*sizes));
  sizes->entry_layout.reset();
  sizes->aliases.clear();
  Builder b(sizes->entry());
  sizes->entry()->set_root(b.Tuple(ready));
  TENON_RETURN_IF_ERROR(RunPass("dce", *sizes));
  return sizes;
}

absl::Status FixSizes(Module& module, absl::Span<const int64_t> sizes) {
  TENON_ASSIGN_OR_RETURN(const std::vector<Instruction*> ready, ReadySizes(module));
  absl::flat_hash_map<const Instruction*, int64_t> value;
  for (size_t i = 0; i < ready.size(); ++i) value[ready[i]] = sizes[i];
  Builder b(module.entry());
  for (Instruction* op : module.entry()->instructions()) {
    if (!TakesSizes(*op)) continue;
    for (int64_t i = 1; i < op->operand_count(); ++i) {
      const auto it = value.find(op->operand(i));
      if (it == value.end()) continue;
      if (it->second < 0 || it->second > BoundOf(*op, i)) {
        return absl::InvalidArgumentError(absl::StrCat(op->name(), ": size ", it->second, " of ", BoundOf(*op, i)));
      }
      op->ReplaceOperand(i, b.ScalarConstantInt(op->operand(i)->shape().element_type(), it->second));
    }
  }
  return RunPass("static-sizes", module);
}

}  // namespace tenon
