// Test modules in tests/backends/*.hlo: several a file, separated by lines of "// ----". Comments
// inside say how to run one:
//   // name: softmax
//   // plan: row                  a piece of the plan's text
//   // tolerance: exact | ulps 2 | abs 1e-5 rel 1e-5        default exact
//   // strict                     excess_precision off
//   // specials                   float inputs contain NaN, infinities, zeros of both signs,
//   subnormals
//   // range: -3 12               of integer inputs (default -20 20); of float inputs too if given
//   (default normal)
//   // in_place: 0                this operand shares the memory of result 0
#pragma once

#include <string>
#include <vector>

#include "hlo/eval/evaluator.h"
#include "hlo/literal.h"
#include "hlo/module.h"
#include "hlo/tolerance.h"

namespace tenon {

struct HloCase {
  std::string file, name, text;
  std::vector<std::string> plan;
  ToleranceRule tolerance;
  bool strict = false, specials = false, has_range = false;
  double low = -20, high = 20;
  int64_t in_place = -1;
};

std::vector<HloCase> LoadCases(const std::string& directory);
// The arrays of a result, in tuple order.
std::vector<Literal> Leaves(const Literal& l);
Literal RandomLiteral(const Shape& shape, const HloCase& c, uint64_t seed);

// ---- for targets other than the host's ----
// The modules of tests/backends and its control flow.
std::vector<HloCase> DeviceCases();
// A name that a test may have.
std::string TestName(const HloCase& c);
// One literal for each parameter, tuples included.
std::vector<Literal> ArgumentsOf(const Module& module, const HloCase& c, uint64_t seed);
// The evaluator with checks of which none fails.
EvalOptions ChecksPass();

}  // namespace tenon
