// Diff: what differs between two modules, as graphs and not as text.
//
// Computations and instructions are matched first: by equal structure below them (operands) and
// above them (users), then by name, then from matched neighbours, then by kind in order.
// Near-linear in the size of the modules. What is matched is compared field by field.
#pragma once

#include <string>
#include <vector>

#include "hlo/module.h"

namespace tenon::lab {

// What may differ and isn't told of.
struct DiffOptions {
  bool names = true, metadata = true, layout = true, backend_config = true, literals = true,
       order = true;
};
// "names", "metadata", "layout", "backend_config", "literals", "order". False: unknown.
bool Ignore(std::string_view what, DiffOptions* options);

struct FieldChange {
  std::string what;  // "name", "opcode", "shape", "layout", "operand 1", an attribute's key,
                     // "literal", "metadata", "root", ...
  std::string a, b;  // as text; empty: absent
};

struct InstructionChange {
  enum class Kind : uint8_t { kRemoved, kAdded, kChanged } kind = Kind::kChanged;
  const Instruction *a = nullptr, *b = nullptr;
  std::vector<FieldChange> fields;  // kChanged
};

struct ComputationDiff {
  const Computation *a = nullptr, *b = nullptr;  // one of them null: removed or added as a whole
  int64_t same = 0;
  std::vector<FieldChange> fields;  // of the computation: name, root, order
  std::vector<InstructionChange> changes;
  bool equal() const { return a != nullptr && b != nullptr && fields.empty() && changes.empty(); }
};

struct ModuleDiff {
  std::vector<FieldChange> fields;  // of the header
  std::vector<ComputationDiff> computations;
  bool equal() const;
  int64_t removed() const, added() const, changed() const;  // instructions

  std::string ToText(std::string_view name_a, std::string_view name_b) const;
  std::string ToJson() const;
};

// The modules must outlive the result.
ModuleDiff Diff(const Module& a, const Module& b, const DiffOptions& options = {});

}  // namespace tenon::lab
