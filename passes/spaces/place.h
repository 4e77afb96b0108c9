// What assign-spaces and settle-spaces share: the walk over a module's steps, and the copies that bring values from space to space.
#pragma once

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "hlo/module.h"

namespace tenon {

void SetSpace(Shape* shape, int64_t space);           // of all its arrays
void TakeSpaces(Shape* to, const Shape& from);        // of the same tree
bool SameSpaces(const Shape& a, const Shape& b);      // of the same tree
// Views, tuples and their elements: no steps of their own.
bool FollowsOperand(const Instruction& op);
void FollowOperands(Instruction* op);

class Placer {
 public:
  virtual ~Placer() = default;
  void Visit(Computation* c);  // operands before users, regions where they run
  bool changed() const { return changed_; }

 protected:
  virtual void Place(Instruction* op) = 0;

  // `value`, or a copy of it, in the spaces of `like`, which has its tree. One copy a space serves all readers.
  Instruction* Bring(Instruction* value, const Shape& like);
  void BringOperand(Instruction* op, int64_t i, const Shape& like);
  void BringOperandTo(Instruction* op, int64_t i, int64_t space);
  void BringRoot(Computation* c, const Shape& like);
  void GiveParameter(Computation* region, const Shape& like);
  // Its state's spaces are the loop's.
  void While(Instruction* loop);
  // Branches have their operands' spaces, and give what the conditional's shape says.
  void Conditional(Instruction* conditional);

  bool changed_ = false;

 private:
  absl::flat_hash_map<std::pair<Instruction*, int64_t>, Instruction*> copies_;
};

}  // namespace tenon
