// DimSlots: symbolic Dims -> SizeRefs of a Program, with the slots that define the symbols from the inputs.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "runtime/program/binding.h"
#include "runtime/program/program.h"

namespace tenon {

class DimSlots {
 public:
  explicit DimSlots(Program* program) : builder_(program) {}
  // Finds for every symbol an input dim, stride or SymInt input that is exactly this symbol.
  void DefineSymbols(const Binding& binding);
  // InvalidArgument: a symbol that no input defines.
  absl::StatusOr<SizeRef> Ref(Dim dim);
  absl::StatusOr<std::vector<SizeRef>> Refs(absl::Span<const Dim> dims);

 private:
  void Define(Dim dim, DimOp op);
  DimProgramBuilder builder_;
  absl::flat_hash_map<std::string, SizeRef> symbols_;
};

}  // namespace tenon
