// Arithmetic of NVPTX's intrinsics on the host, and conversions that generated code calls. Of the emulator's own files only.
#pragma once

#include <cstdint>
#include <span>

namespace tenon::gpu {

float HalfToFloat(uint16_t half);
uint16_t DoubleToHalf(double value);  // to nearest, ties to even, once
uint16_t DoubleToBfloat(double value);

// Functions of one f32 or one f64, by the intrinsic's name behind "llvm.nvvm.". What NVIDIA calls approximate is computed as well as the
// host can: a test that passes here by less than the hardware's error (2 ulp for most) may fail there.
struct UnaryMath {
  const char* intrinsic;
  float (*f32)(float);  // one of the two
  double (*f64)(double);
};
std::span<const UnaryMath> UnaryMathTable();

// fma.rn.ftz.f: denormals are zeros, coming and going.
float FmaFlushed(float a, float b, float c);
float Flushed(float x);

}  // namespace tenon::gpu
