// The planted bugs themselves, by what they change. Internal to tools/lab.
//
// Each stands for a class of miscompile: what it does to a fusion's computation, or to a step, is what the wrong pass or the wrong
// code would have come to.
#pragma once

#include <optional>
#include <string_view>

#include "absl/types/span.h"
#include "hlo/module.h"
#include "runtime/program/program.h"

namespace tenon::lab {

struct ModulePlant {
  std::string_view name, doc;
  bool (*apply)(Module&);
};
struct ProgramPlant {
  std::string_view name, doc;
  bool (*apply)(Program&);
};
absl::Span<const ModulePlant> FirstPlants();  // 1 to 10
absl::Span<const ModulePlant> MorePlants();
absl::Span<const ProgramPlant> ProgramPlants();
absl::Span<const ProgramPlant> SizePlants();  // of programs of symbolic sizes

// For the plants' own use.
// Calls f(fusion, its computation) for every fusion of the module; whether any returned true.
bool InFusions(Module& module, bool (*f)(Instruction& fusion, Computation& fused));
// Calls f(instruction) for every instruction of every fusion, as it was before.
bool OnFused(Module& module, bool (*f)(Instruction& op));
// x where `at` along dim, compared so with `bound`, else `other`.
Instruction* Where(Instruction* x, int64_t dim, std::string_view direction, int64_t bound, double other);
// The uses of x, but for those in what is made from it.
void Redirect(Instruction* x, Instruction* made);
// The opcode that a region of two scalars applies to its parameters; nullopt: it is more than that.
std::optional<Opcode> OpcodeOf(const Computation& region);
// A reduction of one float array by this opcode.
bool IsFloatReduce(const Instruction& op, Opcode by);

}  // namespace tenon::lab
