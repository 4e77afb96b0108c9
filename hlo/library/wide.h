// Arrays of any float or complex type as double or std::complex<double>, in which linear algebra and transforms compute.
#pragma once

#include <complex>
#include <cstring>

#include "hlo/numeric_types.h"

namespace tenon::library {

// Products without the NaN cases of std::complex's operator*.
inline std::complex<double> Times(std::complex<double> a, std::complex<double> b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}
inline double Times(double a, double b) { return a * b; }
inline double Conj(double x) { return x; }
inline std::complex<double> Conj(std::complex<double> x) { return std::conj(x); }
inline double Real(double x) { return x; }
inline double Real(std::complex<double> x) { return x.real(); }
inline double Imag(double) { return 0; }
inline double Imag(std::complex<double> x) { return x.imag(); }
inline double Norm(double x) { return x * x; }
inline double Norm(std::complex<double> x) { return std::norm(x); }

// Exact.
template <typename W>
void Widen(PrimitiveType type, const void* from, int64_t count, W* to) {
  DispatchType(type, [&]<typename T>(TypeTag<T>) {
    const T* in = static_cast<const T*>(from);
    for (int64_t k = 0; k < count; ++k) {
      if constexpr (kIsComplex<T> && kIsComplex<W>) {
        to[k] = W(in[k].real(), in[k].imag());
      } else if constexpr (kIsComplex<T>) {
        to[k] = static_cast<double>(in[k].real());
      } else {
        to[k] = static_cast<double>(in[k]);
      }
    }
  });
}

// To a float or complex type, rounded once; into a real type the real part goes.
template <typename W>
void Narrow(const W* from, int64_t count, PrimitiveType type, void* to) {
  DispatchType(type, [&]<typename T>(TypeTag<T>) {
    T* out = static_cast<T*>(to);
    for (int64_t k = 0; k < count; ++k) {
      if constexpr (kIsComplex<T>) {
        using Part = typename T::value_type;
        out[k] = T(static_cast<Part>(Real(from[k])), static_cast<Part>(Imag(from[k])));
      } else if constexpr (std::is_floating_point_v<T>) {
        out[k] = static_cast<T>(Real(from[k]));
      } else if constexpr (std::is_convertible_v<T, int64_t>) {
        TENON_CHECK(false, "wanted a float or complex type");
      } else {
        out[k] = T(Real(from[k]));
      }
    }
  });
}

}  // namespace tenon::library
