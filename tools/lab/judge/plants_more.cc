// Planted bugs of other classes: what reductions do between one another, halves, specials, large arrays, equal kernels, memory.
#include <cmath>

#include "hlo/builder.h"
#include "runtime/program/kernel_operands.h"
#include "tools/lab/judge/error_rules.h"
#include "tools/lab/judge/plants.h"

namespace tenon::lab {
namespace {

bool LostExp(Instruction&, Computation& fused) {
  int reduces = 0;
  for (const Instruction* i : fused.instructions()) reduces += i->opcode() == Opcode::kReduce;
  if (reduces < 2) return false;
  bool changed = false;
  for (Instruction* i : fused.instructions()) {
    if (i->opcode() != Opcode::kExponential || i->user_count() == 0) continue;
    Redirect(i, i->operand(0));
    changed = true;
  }
  return changed;
}

bool ShortHalfSum(Instruction& op) {
  if (!IsFloatReduce(op, Opcode::kAdd)) return false;
  const Instruction* x = op.operand(0);
  const PrimitiveType type = x->opcode() == Opcode::kConvert ? x->operand(0)->shape().element_type() : x->shape().element_type();
  const int64_t dim = op.dimensions()[0], n = x->shape().constant_dim(dim);
  if (!IsHalfType(type) || n < 8) return false;
  op.ReplaceOperand(0, Where(op.operand(0), dim, "LT", n - 1, 0));
  return true;
}

bool NanAfterFunction(Instruction& op) {
  if (!IsFloat(op.shape().is_array() ? op.shape().element_type() : PrimitiveType::kPred) || !IsTranscendental(op.opcode())) return false;
  Builder b(op.parent());
  Redirect(&op, b.Select(b.Compare(&op, &op, "EQ"), &op, b.FullLike(&op, 0)));
  return true;
}

bool NegateFromZero(Instruction& op) {
  if (op.opcode() != Opcode::kNegate || !IsFloat(op.shape().element_type())) return false;
  Builder b(op.parent());
  Redirect(&op, b.Binary(Opcode::kSubtract, b.FullLike(&op, 0), op.operand(0)));
  return true;
}

bool FiniteSum(Instruction& op) {
  if (!IsFloatReduce(op, Opcode::kAdd)) return false;
  Builder b(op.parent());
  Instruction* x = op.operand(0);
  const double most = LargestFinite(x->shape().element_type());
  if (!std::isfinite(most)) return false;
  op.ReplaceOperand(0, b.Clamp(b.FullLike(x, -most), x, b.FullLike(x, most)));
  return true;
}

bool WrongTie(Instruction& op) {
  if (op.opcode() != Opcode::kSelectAndScatter) return false;
  Instruction* root = op.attrs().get<Computation*>(Attr::kSelect)->root();
  if (root->opcode() != Opcode::kCompare) return false;
  const std::string& direction = root->comparison_direction();
  const char* other = direction == "GE" ? "GT" : direction == "GT" ? "GE" : direction == "LE" ? "LT" : direction == "LT" ? "LE" : nullptr;
  if (other == nullptr) return false;
  root->mutable_attrs().set(Attr::kDirection, std::string(other));
  return true;
}

// The last of the major dimension, which in a small array no second thread would get.
bool LaterGrains(Instruction&, Computation& fused) {
  Instruction* root = fused.root();
  if (!root->IsElementwise() || !root->shape().is_static() || root->shape().rank() == 0) return false;
  if (IsComplex(root->shape().element_type())) return false;
  const int64_t rows = root->shape().constant_dim(0);
  if (root->shape().num_elements_constant() < 1 << 13 || rows < 2) return false;
  Redirect(root, Where(root, 0, "LT", rows - rows / 8 - 1, 0));
  return true;
}

bool LiteralOf(const Instruction* i) {
  if (i->opcode() != Opcode::kConstant || !i->shape().is_scalar() || !IsFloat(i->shape().element_type())) return false;
  const double v = i->literal().GetAsDouble(0);
  return v != 0 && v != 1 && std::isfinite(v);
}

// Kernels that differ in their literals only all have those of the first.
bool SharedLiteral(Module& module) {
  std::vector<std::vector<Instruction*>> fusions;
  for (Computation* c : module.computations()) {
    for (Instruction* i : c->instructions()) {
      if (i->opcode() == Opcode::kFusion) fusions.push_back(i->fused_computation()->PostOrder());
    }
  }
  const auto alike = [](const std::vector<Instruction*>& a, const std::vector<Instruction*>& b) {
    if (a.size() != b.size()) return false;
    for (size_t k = 0; k < a.size(); ++k) {
      const bool literals = LiteralOf(a[k]) && LiteralOf(b[k]);
      if (!(a[k]->shape() == b[k]->shape()) || a[k]->opcode() != b[k]->opcode()) return false;
      if (a[k]->opcode() == Opcode::kConstant && !literals && !(a[k]->literal() == b[k]->literal())) return false;
    }
    return true;
  };
  for (size_t second = 1; second < fusions.size(); ++second) {
    for (size_t first = 0; first < second; ++first) {
      if (!alike(fusions[first], fusions[second])) continue;
      bool changed = false;
      for (size_t k = 0; k < fusions[first].size(); ++k) {
        if (!LiteralOf(fusions[first][k]) || fusions[first][k]->literal() == fusions[second][k]->literal()) continue;
        fusions[second][k]->set_literal(fusions[first][k]->literal());
        changed = true;
      }
      if (changed) return true;
    }
  }
  return false;
}

// Right for halves that may keep f32's bits; wrong where each op rounds, and for every narrower type.
bool RoundTrip(Instruction& op) {
  if (op.opcode() != Opcode::kConvert || op.operand(0)->opcode() != Opcode::kConvert) return false;
  Instruction* x = op.operand(0)->operand(0);
  const PrimitiveType type = op.shape().element_type(), via = op.operand(0)->shape().element_type();
  if (!IsFloat(type) || !IsFloat(via) || x->shape().element_type() != type || BitWidth(via) >= BitWidth(type)) return false;
  Redirect(&op, x);
  return true;
}

bool AnyOrder(Instruction& op) {
  if (op.opcode() != Opcode::kReduce || op.operand_count() != 2 || op.dimensions().empty()) return false;
  const std::optional<Opcode> by = OpcodeOf(*op.to_apply());
  if (by.has_value() && by != Opcode::kSubtract) return false;
  Builder b(op.parent());
  op.ReplaceOperand(0, b.Reverse(op.operand(0), op.dimensions()));
  return true;
}

bool ZeroFactor(Instruction& op) {
  if (!IsFloatReduce(op, Opcode::kMultiply)) return false;
  Builder b(op.parent());
  Instruction* x = op.operand(0);
  Instruction* zero = b.Compare(x, b.FullLike(x, 0), "EQ");
  op.ReplaceOperand(0, b.Select(zero, b.FullLike(x, 1), x));
  return true;
}

constexpr ModulePlant kPlants[] = {
    {"lost-exp", "the exponential between two reductions of a kernel is left out", [](Module& m) { return InFusions(m, LostExp); }},
    {"short-half-sum", "a sum of halves leaves its last term out", [](Module& m) { return OnFused(m, ShortHalfSum); }},
    {"nan-after-function", "a transcendental function of NaN is 0", [](Module& m) { return OnFused(m, NanAfterFunction); }},
    {"negate-from-zero", "-x is 0 - x", [](Module& m) { return OnFused(m, NegateFromZero); }},
    {"finite-sum", "an infinity is the largest number in a sum", [](Module& m) { return OnFused(m, FiniteSum); }},
    {"wrong-tie", "a select-and-scatter takes the other one of two equal values", [](Module& m) { return OnFused(m, WrongTie); }},
    {"later-grains", "a large array's last pieces of work are not done", [](Module& m) { return InFusions(m, LaterGrains); }},
    {"shared-literal", "kernels that differ in a literal are taken for one", SharedLiteral},
    {"round-trip", "a conversion to a narrower type and back is taken for nothing", [](Module& m) { return OnFused(m, RoundTrip); }},
    {"any-order", "a reducer that isn't associative is applied from the end", [](Module& m) { return OnFused(m, AnyOrder); }},
    {"zero-factor", "a zero doesn't count in a product", [](Module& m) { return OnFused(m, ZeroFactor); }},
};

// ---- the program

bool IsWhole(SizeRef size) { return size >= 0; }

bool NeverStored(Program& program) {
  for (Region& region : program.regions) {
    for (Step& step : region.steps) {
      auto* kernel = std::get_if<KernelStep>(&step.body);
      if (kernel == nullptr || !IsWhole(kernel->begin) || !IsWhole(kernel->end) || kernel->end - kernel->begin < 2) continue;
      --kernel->end;
      return true;
    }
  }
  return false;
}

int64_t BytesOf(const View& view) {
  int64_t bytes = ByteWidth(view.dtype);
  for (SizeRef d : view.dims) bytes = IsWhole(d) ? bytes * d : INT64_MAX / 2;
  return bytes;
}

bool IsTemporary(const Value& value) { return value.kind == ValueKind::kArena || value.kind == ValueKind::kLent; }

// A temporary lies in the memory of a result that is written before its last reader.
bool LentTooLong(Program& program) {
  struct Uses {
    int64_t first_write = INT64_MAX, last_write = -1, last_read = -1;
  };
  std::vector<Uses> uses(program.values.size());
  const std::vector<Step>& steps = program.regions[0].steps;
  for (int64_t at = 0; at < std::ssize(steps); ++at) {
    const auto* kernel = std::get_if<KernelStep>(&steps[static_cast<size_t>(at)].body);
    if (kernel == nullptr) return false;
    const KernelOperands operands = OperandsOf(program, *kernel);
    for (const View& v : operands.reads) {
      if (v.value >= 0) uses[v.value].last_read = at;
    }
    for (const View& v : operands.results) {
      if (v.value < 0) continue;
      uses[v.value].first_write = std::min(uses[v.value].first_write, at);
      uses[v.value].last_write = at;
    }
  }
  for (size_t o = 0; o < uses.size(); ++o) {
    const Value out = program.values[o];
    if (out.kind != ValueKind::kOutput || out.bytes < 0) continue;
    for (size_t v = 0; v < uses.size(); ++v) {
      Value& value = program.values[v];
      const bool across = uses[v].last_write < uses[o].first_write && uses[o].last_write < uses[v].last_read;
      if (!IsTemporary(value) || value.is_placed_per_call() || !across || value.bytes <= 0 || value.bytes > out.bytes) continue;
      value = {.kind = ValueKind::kLent, .index = out.index, .bytes = value.bytes, .space = value.space};
      return true;
    }
  }
  return false;
}

// A temporary is put where a constant lies that was read for the last time: right in the first run.
bool LeftByTheLastRun(Program& program) {
  std::vector<Step>& steps = program.regions[0].steps;
  std::vector<bool> read(program.values.size());
  for (size_t at = 0; at < steps.size(); ++at) {
    auto* kernel = std::get_if<KernelStep>(&steps[at].body);
    if (kernel == nullptr) return false;
    for (const View& v : kernel->operands) {
      if (v.value >= 0) read[v.value] = true;
    }
    for (View& result : kernel->operands) {
      if (result.value < 0 || !IsTemporary(program.values[result.value]) || kernel->num_results != 1) continue;
      for (size_t c = 0; c < program.values.size(); ++c) {
        const Value& constant = program.values[c];
        if (constant.kind != ValueKind::kConstant || !read[c] || &result != &kernel->operands[kernel->operands.size() - 1]) continue;
        const ConstantSpec& spec = program.constants[constant.index];
        if (spec.kind != ConstantSpec::Kind::kLiteral || spec.literal.size_bytes() < BytesOf(result) || result.byte_offset != 0) continue;
        bool free = true;
        for (size_t later = at + 1; later < steps.size(); ++later) {
          const auto* k = std::get_if<KernelStep>(&steps[later].body);
          if (k == nullptr) return false;
          for (const View& v : k->operands) free = free && v.value != static_cast<int32_t>(c);
        }
        if (!free) continue;
        const int32_t from = result.value;
        for (Step& step : steps) {
          for (View& v : std::get<KernelStep>(step.body).operands) {
            if (v.value == from) v.value = static_cast<int32_t>(c);
          }
        }
        return true;
      }
    }
  }
  return false;
}

constexpr ProgramPlant kProgramPlants[] = {
    {"never-stored", "the last piece of a kernel's work is never done", NeverStored},
    {"lent-too-long", "a temporary lies in a result's memory, and is read when that is written", LentTooLong},
    {"left-by-the-last-run", "a temporary overwrites a constant after its last use", LeftByTheLastRun},
};

}  // namespace

absl::Span<const ModulePlant> MorePlants() { return kPlants; }
absl::Span<const ProgramPlant> ProgramPlants() { return kProgramPlants; }

}  // namespace tenon::lab
