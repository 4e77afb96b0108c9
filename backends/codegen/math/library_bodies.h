// The bodies behind library.h. Internal to this folder. Operands are scalars or vectors, those of complex functions scalars.
#pragma once

#include "backends/codegen/math/complex.h"
#include "backends/codegen/math/double_double.h"

namespace tenon::math::library {

// exp_f64.cc: e^x = 2^n (1 + p). |x| <= 1100.
struct ExpParts {
  V n;  // a whole number, as a double
  DD p;
};
ExpParts ReduceExp(DD x);
V PowerOfTwo(V n);                // -1022 <= n <= 1023, whole
V ScaleByPower(V y, V n);         // y 2^n for |n| <= 2200, y near 1; rounded once but where it is subnormal
V ExpOf(DD x);                    // e^x for |x| <= 1000
V ExpOf(DD x, DD factor);         // times a factor between 2^-10 and 2; 0 below -760
V Exp(V x);
V Exp2(V x);
V Expm1(V x);
V Sinh(V x);
V Cosh(V x);
V Tanh(V x);

// log_f64.cc: log(2^k x) for normal x > 0; x.lo may be as large as the last places of x.hi.
DD LogOf(DD x, V k);
V Log(V x);
V Log2(V x);
V Log10(V x);
V Log1p(V x);
V Asinh(V x);
V Acosh(V x);
V Atanh(V x);

// trig_f64.cc
V Sin(V x);
V Cos(V x);
V Tan(V x);
V Asin(V x);
V Acos(V x);
V Atan(V x);
V Atan2(V y, V x);

// power_f64.cc
V Cbrt(V x);
V Pow(V x, V y);
V Hypot(V x, V y);

// erf_f64.cc
V Erf(V x);
V Erfc(V x);

// complex_f64.cc: the C functions of these names.
ComplexV Divide(ComplexV x, ComplexV y);  // __divdc3
ComplexV Cexp(ComplexV z);
ComplexV Clog(ComplexV z);
ComplexV Cpow(ComplexV z, ComplexV w);
ComplexV Csqrt(ComplexV z);
ComplexV Csin(ComplexV z);
ComplexV Ccos(ComplexV z);
ComplexV Ctan(ComplexV z);
ComplexV Csinh(ComplexV z);
ComplexV Ccosh(ComplexV z);
ComplexV Ctanh(ComplexV z);
ComplexV Casin(ComplexV z);
ComplexV Cacos(ComplexV z);
ComplexV Catan(ComplexV z);
ComplexV Casinh(ComplexV z);
ComplexV Cacosh(ComplexV z);
ComplexV Catanh(ComplexV z);

}  // namespace tenon::math::library
