// DimSlots: symbolic Dims -> SizeRefs of a Program, with the slots that define the symbols from the inputs.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "runtime/program/binding.h"
#include "runtime/program/program.h"

namespace tenon {

class DimSlots {
 public:
  explicit DimSlots(Program* program) : program_(program), builder_(program) {}
  // Finds for every symbol an input dim, stride or SymInt input that is exactly this symbol, else a dim or SymInt input that is
  // linear in it and has no other unknown, and makes the program's guards of the others. InvalidArgument: there is neither.
  absl::Status DefineSymbols(const Binding& binding);
  // InvalidArgument: a symbol that no input defines.
  absl::StatusOr<SizeRef> Ref(Dim dim);
  absl::StatusOr<std::vector<SizeRef>> Refs(absl::Span<const Dim> dims);

 private:
  void Define(Dim dim, DimOp op);
  void AddSymbol(const DimExpr& e, SizeRef slot, bool may_be_negative);
  std::optional<Dim> OnlyUndefined(Dim dim) const;  // the symbol, if there is exactly one that has no slot
  absl::Status SolveSymbols();
  absl::Status AddGuards();

  Program* program_;
  DimProgramBuilder builder_;
  std::vector<std::pair<Dim, DimOp>> said_;  // what inputs are said to be, but for the places that define symbols
  absl::flat_hash_map<std::string, SizeRef> symbols_;
};

}  // namespace tenon
