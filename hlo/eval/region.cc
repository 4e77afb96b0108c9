#include "hlo/eval/region.h"

#include <cstring>

namespace tenon::eval {
namespace {

constexpr int64_t kSlotBytes = Region::kMaxLanes * kDomainBytes;

// Moves a scalar unchanged.
bool IsIdentity(Opcode opcode) {
  return opcode == Opcode::kBitcast || opcode == Opcode::kReshape || opcode == Opcode::kBroadcast ||
         opcode == Opcode::kOptBarrier || opcode == Opcode::kTranspose;
}

}  // namespace

absl::StatusOr<Region> Region::Make(Context& context, const Computation& computation) {
  Region region;
  region.context_ = &context;
  region.computation_ = &computation;
  for (const Instruction* p : computation.parameters()) {
    region.parameter_widths_.push_back(ByteWidth(p->shape().element_type()));
  }
  for (const Shape& leaf : FlattenShape(computation.root()->shape())) {
    region.result_widths_.push_back(ByteWidth(leaf.element_type()));
  }
  region.flat_ = region.Flatten();
  return region;
}

bool Region::Flatten() {
  absl::flat_hash_map<const Instruction*, int> value_of;
  int next = 0;
  for (const Instruction* p : computation_->parameters()) {
    if (!p->shape().is_scalar()) return false;
    value_of[p] = next++;
  }
  std::vector<Instruction*> order = computation_->PostOrder();
  for (const Instruction* i : order) {
    if (i->opcode() != Opcode::kConstant) continue;
    if (!i->shape().is_scalar()) return false;
    constants_.push_back(i->literal());
    value_of[i] = next++;
  }
  const Instruction* root = computation_->root();
  for (const Instruction* i : order) {
    if (i->opcode() == Opcode::kParameter || i->opcode() == Opcode::kConstant) continue;
    if (i == root && i->opcode() == Opcode::kTuple) continue;
    if (!i->shape().is_scalar()) return false;
    for (const Instruction* operand : i->operands()) {
      if (!value_of.contains(operand)) return false;
    }
    if (IsIdentity(i->opcode())) {
      value_of[i] = value_of[i->operand(0)];
      continue;
    }
    if (!ScalarOp::Handles(*i)) return false;
    absl::StatusOr<ScalarOp> op = ScalarOp::Resolve(*i);
    if (!op.ok()) return false;
    Step step{*op, {}, ByteWidth(i->shape().element_type())};
    for (const Instruction* operand : i->operands()) step.operands.push_back(value_of[operand]);
    steps_.push_back(std::move(step));
    value_of[i] = next++;
  }
  if (root->opcode() == Opcode::kTuple) {
    for (const Instruction* operand : root->operands()) {
      if (!value_of.contains(operand)) return false;
      results_.push_back(value_of[operand]);
    }
  } else {
    results_.push_back(value_of[root]);
  }
  storage_.resize(steps_.size() * kSlotBytes + kDomainBytes);
  return true;
}

absl::Status Region::Run(absl::Span<const ScalarOp::Operand> args,
                         absl::Span<std::byte* const> outs, int64_t lanes) {
  if (!flat_) return RunSlow(args, outs, lanes);
  // One operation straight from the arguments into the result: nearly every reduction.
  if (steps_.size() == 1 && constants_.empty() && results_.size() == 1 &&
      results_[0] == static_cast<int>(args.size())) {
    absl::InlinedVector<ScalarOp::Operand, 3> in;
    for (int v : steps_[0].operands) in.push_back(args[v]);
    steps_[0].op.Run(in, outs[0], lanes);
    return absl::OkStatus();
  }
  absl::InlinedVector<ScalarOp::Operand, 16> values(args.begin(), args.end());
  for (const Literal& c : constants_) values.push_back({c.bytes(), true});
  std::byte* slot = storage_.data();
  for (const Step& step : steps_) {
    absl::InlinedVector<ScalarOp::Operand, 3> in;
    for (int v : step.operands) in.push_back(values[v]);
    step.op.Run(in, slot, lanes);
    values.push_back({slot, false});
    slot += kSlotBytes;
  }
  auto copy = [&](size_t k, const ScalarOp::Operand& from, std::byte* to) {
    const int64_t width = result_widths_[k];
    if (!from.splat) {
      std::memmove(to, from.data, lanes * width);
      return;
    }
    for (int64_t lane = 0; lane < lanes; ++lane) std::memcpy(to + lane * width, from.data, width);
  };
  // A result that is itself an argument could be overwritten by an earlier result (swapped pairs): go through a copy.
  const int arg_count = static_cast<int>(args.size());
  std::vector<std::byte> saved;
  std::vector<ScalarOp::Operand> sources;
  for (size_t k = 0; k < results_.size(); ++k) sources.push_back(values[results_[k]]);
  if (results_.size() > 1) {
    saved.resize(results_.size() * kSlotBytes);
    for (size_t k = 0; k < results_.size(); ++k) {
      if (results_[k] >= arg_count || sources[k].splat) continue;
      std::byte* safe = saved.data() + k * kSlotBytes;
      std::memcpy(safe, sources[k].data, lanes * result_widths_[k]);
      sources[k].data = safe;
    }
  }
  for (size_t k = 0; k < results_.size(); ++k) copy(k, sources[k], outs[k]);
  return absl::OkStatus();
}

absl::Status Region::RunSlow(absl::Span<const ScalarOp::Operand> args,
                             absl::Span<std::byte* const> outs, int64_t lanes) {
  for (int64_t lane = 0; lane < lanes; ++lane) {
    std::vector<Literal> values;
    for (size_t p = 0; p < args.size(); ++p) {
      Literal l(computation_->parameter(p)->shape());
      std::memcpy(l.mutable_bytes(),
                  args[p].data + (args[p].splat ? 0 : lane * parameter_widths_[p]),
                  parameter_widths_[p]);
      values.push_back(std::move(l));
    }
    TENON_ASSIGN_OR_RETURN(Literal result, context_->Call(*computation_, values));
    for (size_t k = 0; k < result_widths_.size(); ++k) {
      const Literal& leaf = result.shape().is_tuple() ? result.elements()[k] : result;
      std::memcpy(outs[k] + lane * result_widths_[k], leaf.bytes(), result_widths_[k]);
    }
  }
  return absl::OkStatus();
}

}  // namespace tenon::eval
