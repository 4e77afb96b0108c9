// Computation: a named graph of instructions with parameters and one root. Owned by its Module.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "hlo/instruction.h"

namespace tenon {

class Module;

class Computation {
 public:
  Computation(std::string name, Module* module) : name_(std::move(name)), module_(module) {}
  Computation(const Computation&) = delete;

  const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }
  Module* module() const { return module_; }
  std::string& execution_thread() { return execution_thread_; }
  const std::string& execution_thread() const { return execution_thread_; }

  Instruction* root() const { return root_; }
  void set_root(Instruction* root);  // must be ours
  absl::Span<Instruction* const> parameters() const { return parameters_; }
  Instruction* parameter(int64_t i) const { return parameters_[i]; }

  // Takes ownership, gives an id and a unique name (derived from the opcode if empty).
  Instruction* Add(std::unique_ptr<Instruction> instruction);
  Instruction* Add(Opcode opcode, Shape shape, absl::Span<Instruction* const> operands, std::string name = "");
  Instruction* AddParameter(int64_t number, Shape shape, std::string name = "");
  Instruction* AddConstant(Literal literal, std::string name = "");
  // Removes an instruction without users that is not the root.
  void Remove(Instruction* instruction);
  // Removes a parameter without users and renumbers the rest (callers' operands are the caller's business).
  void RemoveParameter(int64_t i);
  // Replaces every use (root included) and removes `old` together with operands that die by it (never parameters or
  // instructions with side effects).
  void ReplaceAndRemove(Instruction* old, Instruction* with);

  // In the order of addition (or of the schedule after set_schedule). Stable under removal of others.
  std::vector<Instruction*> instructions() const;
  int64_t instruction_count() const { return static_cast<int64_t>(instructions_.size()); }
  // Operands and control predecessors first; ties by id, so deterministic. Dead instructions included.
  std::vector<Instruction*> PostOrder() const;
  // Makes instructions() follow `order` (a permutation of all of them, topological: checked).
  void set_schedule(absl::Span<Instruction* const> order);

  // Copies this computation into `module` (which may be another one) with called computations mapped by `remap`
  // (identity where absent).
  Computation* CloneInto(Module* module, std::string name,
                         const std::function<Computation*(Computation*)>& remap = nullptr) const;

  std::string ToString() const;

 private:
  void Erase(Instruction* instruction);
  void Reorder(absl::Span<Instruction* const> order);

  std::string name_, execution_thread_;
  Module* module_;
  std::list<std::unique_ptr<Instruction>> instructions_;
  absl::flat_hash_map<const Instruction*, std::list<std::unique_ptr<Instruction>>::iterator> where_;
  std::vector<Instruction*> parameters_;
  Instruction* root_ = nullptr;
};

}  // namespace tenon
