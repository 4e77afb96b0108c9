#include "hlo/instruction.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "hlo/module.h"
#include "hlo/text/text.h"

namespace tenon {

bool Metadata::empty() const {
  return op_type.empty() && op_name.empty() && source_file.empty() && source_line == 0 &&
         source_column == 0 && source_end_line == 0 && source_end_column == 0 &&
         stack_frame_id == 0 && module_path.empty() && unknown.empty();
}

Instruction::Instruction(Opcode opcode, Shape shape, absl::Span<Instruction* const> operands,
                         std::string name)
    : opcode_(opcode),
      shape_(std::move(shape)),
      name_(std::move(name)),
      operands_(operands.begin(), operands.end()) {}

Module* Instruction::module() const { return parent_ == nullptr ? nullptr : parent_->module(); }

// Edges exist while the instruction is in a computation: a detached one is nobody's user. Whether `user` is in
// `users_` is read off user's own operands, so that an edge costs nothing per user of the operand.
void Instruction::AddUse(Instruction* operand) {
  if (parent_ != nullptr) operand->users_.push_back(this);
}

void Instruction::DropUse(Instruction* operand) {
  if (parent_ == nullptr) return;
  auto it = std::find(operand->users_.begin(), operand->users_.end(), this);
  TENON_CHECK(it != operand->users_.end(), name_);
  operand->users_.erase(it);
}

bool Instruction::Uses(const Instruction* operand) const {
  return std::find(operands_.begin(), operands_.end(), operand) != operands_.end();
}

void Instruction::LinkOperands() {
  constexpr size_t kScan = 16;
  absl::flat_hash_set<Instruction*> seen;
  for (size_t i = 0; i < operands_.size(); ++i) {
    Instruction* operand = operands_[i];
    bool is_new = operands_.size() > kScan
                      ? seen.insert(operand).second
                      : std::find(operands_.begin(), operands_.begin() + i, operand) ==
                            operands_.begin() + i;
    if (is_new) AddUse(operand);
  }
}

void Instruction::UnlinkOperands() {
  absl::flat_hash_set<Instruction*> seen;
  for (Instruction* operand : operands_) {
    if (seen.insert(operand).second) DropUse(operand);
  }
}

void Instruction::ReplaceOperand(int64_t i, Instruction* with) {
  Instruction* old = operands_.at(i);
  if (old == with) return;
  if (!Uses(with)) AddUse(with);
  operands_[i] = with;
  if (!Uses(old)) DropUse(old);
}

void Instruction::AppendOperand(Instruction* operand) {
  if (!Uses(operand)) AddUse(operand);
  operands_.push_back(operand);
}

void Instruction::RemoveOperand(int64_t i) {
  Instruction* old = operands_.at(i);
  operands_.erase(operands_.begin() + i);
  if (!Uses(old)) DropUse(old);
}

void Instruction::ReplaceAllUsesWith(Instruction* with) {
  TENON_CHECK(with != this, name_);
  std::vector<Instruction*> users = std::move(users_);
  users_.clear();
  for (Instruction* user : users) {
    if (user == with) {  // with = f(this): it keeps its operand
      users_.push_back(user);
      continue;
    }
    if (!user->Uses(with)) user->AddUse(with);
    std::replace(user->operands_.begin(), user->operands_.end(), this, with);
  }
  if (parent_ != nullptr && parent_->root() == this) parent_->set_root(with);
}

void Instruction::AddControlPredecessor(Instruction* pred) {
  if (std::find(control_predecessors_.begin(), control_predecessors_.end(), pred) !=
      control_predecessors_.end()) {
    return;
  }
  control_predecessors_.push_back(pred);
  pred->control_successors_.push_back(this);
}

void Instruction::ClearControlEdges() {
  for (Instruction* pred : control_predecessors_) std::erase(pred->control_successors_, this);
  for (Instruction* succ : control_successors_) std::erase(succ->control_predecessors_, this);
  control_predecessors_.clear();
  control_successors_.clear();
}

std::vector<Computation*> Instruction::called_computations() const {
  std::vector<Computation*> called;
  for (const auto& [attr, value] : attrs_) {
    if (auto* c = std::get_if<Computation*>(&value)) {
      called.push_back(*c);
    } else if (auto* list = std::get_if<std::vector<Computation*>>(&value)) {
      called.insert(called.end(), list->begin(), list->end());
    }
  }
  return called;
}

std::string Instruction::backend_config() const {
  const FrameworkCallSite* site = framework_call();
  return site != nullptr ? tenon::ToString(*site) : attrs_.get_or<std::string>(Attr::kBackendConfig, "");
}

const FrameworkCallSite* Instruction::framework_call() const {
  const AttrValue* value = attrs_.find(Attr::kBackendConfig);
  const auto* call = value == nullptr ? nullptr : std::get_if<FrameworkCallRef>(value);
  return call == nullptr ? nullptr : &**call;
}

void Instruction::set_backend_config_json(std::string json) {
  attrs_.set(Attr::kBackendConfig, std::move(json));
  attrs_.backend_config_is_json = true;
}

int64_t Instruction::parameter_number() const {
  TENON_CHECK(opcode_ == Opcode::kParameter, name_);
  return parameter_number_;
}

const Literal& Instruction::literal() const {
  TENON_CHECK(literal_ != nullptr, name_);
  return *literal_;
}

static bool HasOwnSideEffect(const Instruction& i) {
  if (i.opcode() == Opcode::kCustomCall) return i.attrs().get_or<bool>(Attr::kCustomCallHasSideEffect, false);
  return (i.info().traits & (kMayHaveSideEffect | kStateful)) != 0;
}

bool Instruction::HasSideEffect() const {
  if (HasOwnSideEffect(*this)) return true;
  const std::vector<Computation*> called = called_computations();
  if (called.empty()) return false;
  // Each computation once, and without recursion: calls may be nested deep, and shared.
  absl::flat_hash_set<const Computation*> seen(called.begin(), called.end());
  std::vector<const Computation*> left(seen.begin(), seen.end());
  while (!left.empty()) {
    const Computation* c = left.back();
    left.pop_back();
    for (const Instruction* i : c->instructions()) {
      if (HasOwnSideEffect(*i)) return true;
      for (const Computation* inner : i->called_computations()) {
        if (seen.insert(inner).second) left.push_back(inner);
      }
    }
  }
  return false;
}

bool Instruction::IsStateful() const { return HasSideEffect(); }

bool Instruction::Identical(const Instruction& a, const Instruction& b) {
  return a.operands_ == b.operands_ && IdenticalIgnoringOperands(a, b);
}

std::unique_ptr<Instruction> Instruction::Clone(absl::Span<Instruction* const> new_operands) const {
  return CloneWithShape(shape_, new_operands);
}

std::unique_ptr<Instruction> Instruction::CloneWithShape(
    const Shape& shape, absl::Span<Instruction* const> new_operands) const {
  auto clone = std::make_unique<Instruction>(opcode_, shape, new_operands, name_);
  clone->attrs_ = attrs_;
  clone->metadata_ = metadata_;
  clone->parameter_number_ = parameter_number_;
  if (literal_ != nullptr) clone->literal_ = std::make_unique<Literal>(*literal_);
  return clone;
}

std::string Instruction::ToString() const { return Print(*this); }

}  // namespace tenon
