// Regress: a module and its arguments in one file of text, so that what once failed is run for ever (tests/regress).
//
//   // found by hlo-fuzz --seed=1 --module=58: different (isa=avx512 threads=1)       any comment
//   // argument: f32[2,3] {{1, 2, nan}, {4, 5, 6}}                                   one per parameter, or
//   // inputs: 9073148541872606767                                                   a seed for RandomInputs
//   // sizes: s=7,t=64                                                               before a seed, of a module with symbols
//   HloModule ...
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "tools/lab/reduce/reduce.h"

namespace tenon::lab {

// `comment`: lines without "//".
std::string PrintRegress(const Module& module, absl::Span<const Literal> arguments, std::string_view comment);
absl::StatusOr<Case> ParseRegress(std::string_view text);

}  // namespace tenon::lab
