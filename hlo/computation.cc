#include "hlo/computation.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "hlo/module.h"
#include "hlo/text/text.h"

namespace tenon {

void Computation::set_root(Instruction* root) {
  TENON_CHECK(root != nullptr && root->parent_ == this, name_);
  root_ = root;
}

Instruction* Computation::Add(std::unique_ptr<Instruction> instruction) {
  Instruction* i = instruction.get();
  TENON_CHECK(i->parent_ == nullptr, i->name());
  for (const Instruction* operand : i->operands_) {
    TENON_CHECK(operand != nullptr && operand->parent_ == this,
                absl::StrCat("an operand of ", i->name(), " is of another computation"));
  }
  i->parent_ = this;
  i->id_ = module_->NextId();
  i->name_ = module_->UniqueInstructionName(i->name_.empty() ? OpcodeName(i->opcode_) : i->name_);
  i->LinkOperands();
  where_[i] = instructions_.insert(instructions_.end(), std::move(instruction));
  if (i->opcode_ == Opcode::kParameter) {
    size_t number = i->parameter_number_ < 0 ? parameters_.size() : i->parameter_number_;
    i->parameter_number_ = number;
    if (parameters_.size() <= number) parameters_.resize(number + 1);
    TENON_CHECK(parameters_[number] == nullptr,
                absl::StrCat("parameter ", number, " of ", name_, " exists"));
    parameters_[number] = i;
  }
  return i;
}

Instruction* Computation::Add(Opcode opcode, Shape shape, absl::Span<Instruction* const> operands,
                              std::string name) {
  return Add(std::make_unique<Instruction>(opcode, std::move(shape), operands, std::move(name)));
}

Instruction* Computation::AddParameter(int64_t number, Shape shape, std::string name) {
  auto p = std::make_unique<Instruction>(Opcode::kParameter, std::move(shape),
                                         absl::Span<Instruction* const>(), std::move(name));
  p->set_parameter_number(number);
  return Add(std::move(p));
}

Instruction* Computation::AddConstant(Literal literal, std::string name) {
  auto c = std::make_unique<Instruction>(Opcode::kConstant, literal.shape(),
                                         absl::Span<Instruction* const>(), std::move(name));
  c->set_literal(std::move(literal));
  return Add(std::move(c));
}

void Computation::Erase(Instruction* i) {
  TENON_CHECK(i->parent_ == this && i->users_.empty() && i != root_,
              absl::StrCat("removing ", i->name(), ", which is in use"));
  // What ran before it still runs before what ran after it.
  for (Instruction* successor : i->control_successors_) {
    for (Instruction* predecessor : i->control_predecessors_) {
      successor->AddControlPredecessor(predecessor);
    }
  }
  i->ClearControlEdges();
  i->UnlinkOperands();
  auto it = where_.find(i);
  auto position = it->second;
  where_.erase(it);
  instructions_.erase(position);
}

void Computation::Remove(Instruction* instruction) {
  TENON_CHECK(instruction->opcode() != Opcode::kParameter, instruction->name());
  Erase(instruction);
}

void Computation::RemoveParameter(int64_t i) {
  Instruction* parameter = parameters_.at(i);
  Erase(parameter);
  parameters_.erase(parameters_.begin() + i);
  for (size_t n = i; n < parameters_.size(); ++n) parameters_[n]->parameter_number_ = n;
}

void Computation::ReplaceAndRemove(Instruction* old, Instruction* with) {
  old->ReplaceAllUsesWith(with);
  if (!old->users_.empty() || old->opcode_ == Opcode::kParameter) return;
  std::vector<Instruction*> dead = {old};
  while (!dead.empty()) {
    Instruction* i = dead.back();
    dead.pop_back();
    std::vector<Instruction*> operands(i->operands_);
    Erase(i);
    absl::flat_hash_set<Instruction*> seen;
    for (Instruction* operand : operands) {
      if (seen.insert(operand).second && operand->users_.empty() && operand != root_ &&
          operand != with && operand->opcode_ != Opcode::kParameter &&
          operand->control_predecessors_.empty() && operand->control_successors_.empty() &&
          !operand->HasSideEffect()) {
        dead.push_back(operand);
      }
    }
  }
}

std::vector<Instruction*> Computation::instructions() const {
  std::vector<Instruction*> all;
  all.reserve(instructions_.size());
  for (const auto& i : instructions_) all.push_back(i.get());
  return all;
}

// Depth first, from the smallest id on: an order of addition that is topological is kept as it is. An edge of a cycle
// (which the verifier reports) is skipped.
std::vector<Instruction*> Computation::PostOrder() const {
  std::vector<Instruction*> starts = instructions();
  std::sort(starts.begin(), starts.end(),
            [](const Instruction* a, const Instruction* b) { return a->id_ < b->id_; });
  std::vector<Instruction*> order;
  order.reserve(starts.size());
  absl::flat_hash_set<const Instruction*> visited;
  visited.reserve(starts.size());
  struct Frame {
    Instruction* instruction;
    size_t next;
  };
  std::vector<Frame> stack;
  for (Instruction* start : starts) {
    if (!visited.insert(start).second) continue;
    stack.push_back({start, 0});
    while (!stack.empty()) {
      Instruction* i = stack.back().instruction;
      size_t next = stack.back().next++;
      size_t operands = i->operands_.size();
      if (next < operands + i->control_predecessors_.size()) {
        Instruction* before =
            next < operands ? i->operands_[next] : i->control_predecessors_[next - operands];
        if (visited.insert(before).second) stack.push_back({before, 0});
      } else {
        order.push_back(i);
        stack.pop_back();
      }
    }
  }
  return order;
}

void Computation::Reorder(absl::Span<Instruction* const> order) {
  TENON_CHECK(order.size() == instructions_.size(), name_);
  for (Instruction* i : order) {
    auto it = where_.find(i);
    TENON_CHECK(it != where_.end(), name_);
    instructions_.splice(instructions_.end(), instructions_, it->second);
  }
}

void Computation::set_schedule(absl::Span<Instruction* const> order) {
  absl::flat_hash_set<const Instruction*> done;
  done.reserve(order.size());
  for (const Instruction* i : order) {
    for (const Instruction* operand : i->operands_) {
      TENON_CHECK(done.contains(operand),
                  absl::StrCat(i->name(), " is scheduled before ", operand->name()));
    }
    for (const Instruction* pred : i->control_predecessors_) {
      TENON_CHECK(done.contains(pred),
                  absl::StrCat(i->name(), " is scheduled before ", pred->name()));
    }
    TENON_CHECK(done.insert(i).second, absl::StrCat(i->name(), " is scheduled twice"));
  }
  Reorder(order);
}

std::string Computation::ToString() const { return Print(*this); }

}  // namespace tenon
