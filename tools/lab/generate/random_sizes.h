// Symbols of random modules, and sizes for them.
#pragma once

#include <vector>

#include "hlo/sizes.h"
#include "tools/lab/generate/random_inputs.h"

namespace tenon::lab {

// One to three symbols of the table with ranges and divisors of their own, and sizes that are expressions of them.
std::vector<Dim> RandomSymbols(DimTable& table, Random& random);
std::vector<Dim> RandomExpressions(const std::vector<Dim>& symbols, Random& random);

// Sizes that show how much a module computes: moderate ones, and each symbol large among small ones.
std::vector<Sizes> ProbesOf(const std::vector<Dim>& symbols);

// The nearest size that the symbol may have.
int64_t Nearest(Dim symbol, int64_t size);

// Elements of all arrays of the module with these sizes; a negative size, or more than can be said: INT64_MAX.
int64_t ElementsWith(const Module& module, const Sizes& sizes);

// Up to `count` different assignments of sizes to the module's symbols, within their ranges: 0, 1, 2, 7 and others, the least of each, at
// most one of 64 to 1000 at a time; arrays have up to `max_elements` in all. At least one, however many elements it has.
std::vector<Sizes> RandomSizes(const Module& module, Random& random, int count, int64_t max_elements);

// Sizes around `sizes` for runs before another at these: the least of all, larger ones, and one symbol large while the others are small.
std::vector<Sizes> OtherSizes(const Module& module, const Sizes& sizes);

}  // namespace tenon::lab
