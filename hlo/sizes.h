// Sizes: numbers for the symbols of a module (hlo/dim/dim.h), as one call brings them.
//
// A module with symbols stands for a module of numbers at each set of sizes; WithSizes() is that module, with the same computations and
// instructions in the same order. The evaluator defines what a symbolic module means by it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "hlo/literal.h"
#include "hlo/module.h"

namespace tenon {

using Sizes = std::map<std::string, int64_t>;  // by the symbol's name

std::string SizesText(const Sizes& sizes);  // "s=7,t=64"; ParseSizes reads it
absl::StatusOr<Sizes> ParseSizes(std::string_view text);

// The symbols that occur in the module, by name.
std::vector<Dim> SymbolsOf(const Module& module);
inline bool HasSymbols(const Module& module) { return !SymbolsOf(module).empty(); }

// InvalidArgument: a symbol of `d` has no size; division by zero.
absl::StatusOr<int64_t> SizeOf(Dim d, const Sizes& sizes);

// What the arguments' sizes make the symbols: each is read where some dim of a parameter is it. InvalidArgument, by name: arguments of
// another number, type or rank, a symbol that no dim is, a size that isn't what its dim comes to, one outside of its symbol's range.
absl::StatusOr<Sizes> SizesOfArguments(const Module& module, absl::Span<const Literal> arguments);

// The expression with numbers for some symbols.
Dim WithSizes(Dim d, const Sizes& sizes);

// Puts numbers for some symbols, in the expressions that hold them too. What the module then is, the verifier says.
void PutSizes(Module& module, const Sizes& sizes);

// The module with numbers for all symbols. InvalidArgument: a symbol without a size, or one outside of its range; what the verifier says
// of the module of numbers (sizes that it does not hold for).
absl::StatusOr<std::unique_ptr<Module>> WithSizes(const Module& module, const Sizes& sizes);

}  // namespace tenon
