// Edits of a case that the reducer is made of. Private to tools/lab/reduce/ and its tests.
//
// An edit works on a copy and may leave a module that the verifier refuses: the reducer asks the
// verifier before the predicate. Instructions of one copy are found in another by Position, which
// Clone() keeps.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "tools/lab/reduce/reduce.h"

namespace tenon::lab {

struct Position {
  size_t computation = 0,
         instruction = 0;  // in Module::computations() and Computation::instructions()
};
Position PositionOf(const Instruction* instruction);
Instruction* At(const Module& module, Position position);  // nullptr: no such instruction

// The evaluator's value of each instruction of the entry, by name; what it cannot evaluate is
// missing.
using Values = absl::flat_hash_map<std::string, Literal>;
Values ValuesOf(const Case& c);
// The value of `instruction`, or where it isn't known a harmless one of its shape. nullopt: shapes
// that no literal has (tokens).
std::optional<Literal> ValueOf(const Instruction* instruction, const Values& values);

// An array becomes a new parameter with that argument, a tuple a tuple of them. nullptr: not
// possible.
Instruction* Materialize(Case* c, const Shape& shape, const Literal& value,
                         const std::string& name);

// The entry's instructions that `keep` (by instructions() order) names, with the parameters and
// constants they need: other operands become parameters of the same value, and what anybody else
// used becomes an output. nullopt: nothing would be left.
std::optional<Case> Cut(const Case& c, const std::vector<bool>& keep, const Values& values);

// Results of the entry: the operands of a tuple root, else the root.
std::vector<Instruction*> Outputs(const Module& module);
// Only these results are left, in this order; the rest dies.
void SetOutputs(Case* c, const std::vector<Instruction*>& outputs);

// Removes what nobody uses (effects stay), takes tuples that are taken apart again away, drops
// unused parameters with their arguments, keeps header attributes consistent and the order
// printable.
void Cleanup(Case* c);
void RemoveArgument(Case* c, int64_t parameter);

// Copies of the instructions of `callee` in `into`, with `arguments` for its parameters; the copy
// of its root.
Instruction* InlineInto(Computation* into, const Computation& callee,
                        absl::Span<Instruction* const> arguments);

// How large a case is; the reducer accepts nothing that makes it larger.
struct Size {
  int64_t instructions = 0, outputs = 0, elements = 0,
          detail = 0;  // detail: attributes, types, values that aren't simple
  auto operator<=>(const Size&) const = default;
};
Size SizeOf(const Case& c);

}  // namespace tenon::lab
