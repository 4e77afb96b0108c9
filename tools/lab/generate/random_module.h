// RandomModule: a verified module from a seed, the same on every machine.
//
// What it may contain is a table: for every opcode that the evaluator runs, one row that adds one instruction of it (and what it
// needs around it) to a partly built computation. A module draws from a random part of the table and of the types, so that few
// things meet often ("swarm testing", Groce et al., ISSTA 2012). docs/architecture/lab.md tells how exactness is kept track of.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hlo/module.h"

namespace tenon::lab {

struct GeneratorOptions {
  int64_t size = 20;            // rows applied to the entry: from size/2 to 3*size/2
  int64_t max_elements = 2048;  // of one array
  int max_depth = 3;            // of nested control flow
  bool layouts = true;          // other than row-major
  bool symbols = false;         // sizes are one to three symbols and expressions of them, beside numbers (random_sizes.h)
  // Families ("movement") and opcodes ("pad") the module draws from; empty: all. Leaves, converts and what shapes operands always occur.
  std::vector<std::string> only, without;
  std::vector<PrimitiveType> types;  // element types that arrays have where the op leaves a choice; empty: all
};

std::unique_ptr<Module> RandomModule(uint64_t seed, const GeneratorOptions& options = {});

// The opcodes with a row, in the order of ops.def.
std::vector<Opcode> GeneratedOpcodes();
// "": every name in `only` and `without` is a family or an opcode with a row. Else what isn't.
std::string UnknownNames(const GeneratorOptions& options);

}  // namespace tenon::lab
