// The float bodies behind math_functions.def, and the f64 cores they share. Internal to this folder
// and its tests.
#pragma once

#include <span>

#include "backends/codegen/math/vec.h"

namespace tenon::math {

// A body of one or two operands.
struct Body {
  Body(V (*f)(V)) : unary(f) {}      // NOLINT: so that a table row can name either kind
  Body(V (*f)(V, V)) : binary(f) {}  // NOLINT
  V (*unary)(V) = nullptr;
  V (*binary)(V, V) = nullptr;
};

// exp.cc
V EmitExp(V x);
V EmitExpWith(V x, std::span<const float>
                       coefficients);  // EmitExp with another kExpF, for the test of the checker
V EmitExp2(V x);
V EmitExpm1(V x);
V EmitLogistic(V x);
V EmitTanh(V x);
V EmitSinh(V x);
V EmitCosh(V x);

// exp.cc: e^x = 2^n (1 + p), in f32, for |x| < 2^21. n is in the low 9 bits of `biased`, with
// `bias` added.
struct ExpParts {
  V biased;
  V p;
};
ExpParts ReduceExp(V x, double bias, std::span<const float> coefficients);
V PowerOfTwo(V biased);  // 2^n as f32; bias must be 127 and -126 <= n <= 127

// exp.cc: 2^t in f64 for |t| <= 1000; NaN stays.
V Exp2F64(V t);

// log.cc
V EmitLog(V x);
V EmitLog1p(V x);
V EmitLog2(V x);
V EmitLog10(V x);
V EmitAsinh(V x);
V EmitAcosh(V x);
V EmitAtanh(V x);

// log.cc: log2(x) in f64, relative error 2^-37, for positive normal x. Zero, inf and NaN give
// something finite.
V Log2F64(V x);

// log.cc: log(1 + v) in f64 for finite v > -1; NaN stays.
V Log1pF64(V v);

// power.cc
V EmitRsqrt(V x);
V EmitCbrt(V x);
V EmitPow(V x, V y);

// trig.cc
V EmitSin(V x);
V EmitCos(V x);
V EmitTan(V x);
V EmitAsin(V x);
V EmitAcos(V x);
V EmitAtan(V x);
V EmitAtan2(V y, V x);

// erf.cc
V EmitErf(V x);
V EmitCoarseErf(V x);  // within kCoarseErfError (math.h), never beyond 1; half the instructions
V EmitCoarseErfWith(V x, std::span<const float> coefficients);  // for the test of its test
V EmitErfc(V x);
V EmitErfInv(V x);

}  // namespace tenon::math
