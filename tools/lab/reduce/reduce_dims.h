// Dimension classes: which dimensions of a module must have one size, and resizing such a class
// everywhere at once. Private to the reducer.
#pragma once

#include <optional>
#include <vector>

#include "tools/lab/reduce/reduce_edit.h"

namespace tenon::lab {

struct DimClass {
  int64_t size = 0, members = 0;
  Position at;      // one of its dims: of this instruction,
  size_t leaf = 0;  // this leaf of its shape,
  int64_t dim = 0;  // this dimension
};
// Classes of more than one element, largest size * members first.
std::vector<DimClass> DimClasses(const Module& module);

// A copy in which the classes `which` have `size`, with every size that follows from it, arguments
// and constants cut down to it (the leading elements, or the trailing ones). nullopt: the sizes
// that follow contradict each other, or inference refuses.
std::optional<Case> Resized(const Case& c, absl::Span<const DimClass> which, int64_t size,
                            bool trailing);

// The elements of `literal` that a smaller (or larger: repeated) shape has, the leading ones or the trailing.
Literal CutTo(const Literal& literal, const Shape& shape, bool trailing);

// Shapes of everything downstream inferred again after attributes or types have changed. False:
// refused.
bool Reinfer(Module* module);

}  // namespace tenon::lab
