// Elementary functions of complex numbers in double precision: what C++'s std::complex<double>
// computes, bit for bit, with the same C library behind it (Annex G's infinities and NaNs included).
#pragma once

#include "backends/codegen/math/vec.h"

namespace tenon::math {

// Parts of one type: double or <N x double>.
struct ComplexV {
  V re, im;
};

inline ComplexV operator+(ComplexV x, ComplexV y) { return {x.re + y.re, x.im + y.im}; }
inline ComplexV operator-(ComplexV x, ComplexV y) { return {x.re - y.re, x.im - y.im}; }
inline ComplexV operator-(ComplexV x) { return {-x.re, -x.im}; }
inline ComplexV operator+(double x, ComplexV y) { return {y.re + x, y.im}; }
ComplexV operator*(ComplexV x, ComplexV y);
ComplexV operator/(ComplexV x, ComplexV y);
ComplexV operator/(double x, ComplexV y);

// One call a lane of a C function of one or two complex numbers ("cexp", "cpow"), or of the parts of
// one ("hypot").
ComplexV CallComplex(const char* symbol, std::initializer_list<ComplexV> args);
V CallReal(const char* symbol, std::initializer_list<V> args);

V Abs(ComplexV x);
ComplexV Sign(ComplexV x);  // x / |x|
ComplexV Expm1(ComplexV x);
ComplexV Log1p(ComplexV x);
ComplexV Logistic(ComplexV x);
ComplexV Rsqrt(ComplexV x);
ComplexV Power(ComplexV x, ComplexV y);
ComplexV Cbrt(ComplexV x);
ComplexV Atan2(ComplexV y, ComplexV x);

}  // namespace tenon::math
