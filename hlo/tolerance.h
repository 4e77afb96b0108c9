// How far a backend's result may lie from the evaluator's (docs/architecture/lab.md, Judging), and where two literals differ.
//
//  exact           bit equality (NaN equals NaN, -0 equals +0 only if `zero_signs` is off)
//  ulps            at most n units in the last place of the result's type
//  accumulated     reductions and contractions: |err| <= c * n * eps * sum|x_i*y_i|, one c for all; n terms, eps of the
//                  accumulation type, plus one rounding to the result's type
//  absolute_relative  |got-want| <= atol + rtol*|want|
#pragma once

#include <string>

#include "hlo/literal.h"

namespace tenon {

// The one constant of the accumulation bound: a straight sum has c = 1; 2 leaves room for a product's own rounding.
inline constexpr double kAccumulationConstant = 2.0;

// Distance to the next larger value of 1.0 in the type; 0 for integers.
double EpsilonOf(PrimitiveType type);

// The bound for one element: `terms` products or summands whose absolute values sum to `magnitude`.
double AccumulationBound(PrimitiveType accumulation, PrimitiveType result, int64_t terms,
                         double magnitude);

// Units in the last place between two values of a float type, counted along its number line. NaN to NaN is 0, NaN to a
// number INT64_MAX.
int64_t UlpDistance(PrimitiveType type, double a, double b);

struct ToleranceRule {
  enum class Kind : uint8_t { kExact, kUlps, kAccumulated, kAbsoluteRelative };
  Kind kind = Kind::kExact;
  bool zero_signs = false;
  int64_t ulps = 0;
  double atol = 0, rtol = 0;
  PrimitiveType accumulation = PrimitiveType::kF32;
  int64_t terms = 0;
  const Literal* magnitude = nullptr;  // per element sum|x_i*y_i|, as f64

  static ToleranceRule Exact() { return {}; }
  static ToleranceRule Ulps(int64_t n);
  static ToleranceRule AbsRel(double atol, double rtol);
  static ToleranceRule Accumulated(PrimitiveType accumulation, int64_t terms,
                                   const Literal* magnitude);
};

struct LiteralDifference {
  bool within = true;           // every element obeys the rule
  std::string what;             // empty, or why not comparable, or the worst element in words
  int64_t differing = 0;        // elements that break the rule
  int64_t elements = 0;
  std::vector<int64_t> tuple_index, index;  // of the worst element
  double got = 0, want = 0, abs = 0, rel = 0;
  int64_t ulp = 0;  // largest, over the elements compared (floats)
};

// Compares leaf by leaf. Complex numbers are compared part by part.
LiteralDifference CompareLiterals(const Literal& got, const Literal& want,
                                  const ToleranceRule& rule = ToleranceRule::Exact());

}  // namespace tenon
