// The kernels behind ScalarOp, by opcode and domain. nullptr: the op is not defined there.
#pragma once

#include "hlo/eval/scalar_op.h"

namespace tenon::eval {

ScalarOp::Kernel KernelOf(Opcode opcode, PrimitiveType type, PrimitiveType result);
ScalarOp::Kernel ConvertKernel(PrimitiveType from, PrimitiveType to);
ScalarOp::Kernel CompareKernel(std::string_view direction, std::string_view comparison_type,
                               PrimitiveType type);

// custom-call "tenon.fma" (hlo/own_calls.h).
ScalarOp::Kernel FmaKernel(PrimitiveType type);

// The four domains and raw bits, each in its own file.
ScalarOp::Kernel FloatKernel(Opcode opcode, PrimitiveType result);
ScalarOp::Kernel ComplexKernel(Opcode opcode);
ScalarOp::Kernel SignedKernel(Opcode opcode);
ScalarOp::Kernel UnsignedKernel(Opcode opcode);
ScalarOp::Kernel RawKernel(Opcode opcode, PrimitiveType type);

// Wraps f into a kernel over arrays of domain types. f takes (args..., params) or (args...).
template <typename Out, typename In, typename F>
ScalarOp::Kernel UnaryKernel(F) {
  return [](const void* const* in, void* out, int64_t n, const ScalarOpParams& p) {
    auto* x = static_cast<const In*>(in[0]);
    auto* y = static_cast<Out*>(out);
    for (int64_t i = 0; i < n; ++i) {
      if constexpr (std::is_invocable_v<F, In, const ScalarOpParams&>) {
        y[i] = F{}(x[i], p);
      } else {
        y[i] = F{}(x[i]);
      }
    }
  };
}

template <typename Out, typename In, typename F>
ScalarOp::Kernel BinaryKernel(F) {
  return [](const void* const* in, void* out, int64_t n, const ScalarOpParams& p) {
    auto* a = static_cast<const In*>(in[0]);
    auto* b = static_cast<const In*>(in[1]);
    auto* y = static_cast<Out*>(out);
    for (int64_t i = 0; i < n; ++i) {
      if constexpr (std::is_invocable_v<F, In, In, const ScalarOpParams&>) {
        y[i] = F{}(a[i], b[i], p);
      } else {
        y[i] = F{}(a[i], b[i]);
      }
    }
  };
}

template <typename T, typename F>
ScalarOp::Kernel TernaryKernel(F) {
  return [](const void* const* in, void* out, int64_t n, const ScalarOpParams& p) {
    auto* a = static_cast<const T*>(in[0]);
    auto* b = static_cast<const T*>(in[1]);
    auto* c = static_cast<const T*>(in[2]);
    auto* y = static_cast<T*>(out);
    for (int64_t i = 0; i < n; ++i) y[i] = F{}(a[i], b[i], c[i]);
  };
}

}  // namespace tenon::eval
