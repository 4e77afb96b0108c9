// Matrix products of the plain host: out = lhs * rhs (+ bias along the columns), batch by batch, on strided memory.
//
// f16, bf16 and f32 sum in f32, f64 in f64, complex types in complex<double>, each rounded once at the end. Blocked and spread over the
// pool's threads; the same bits whatever the number of threads.
#pragma once

#include "runtime/tenon_c.h"

namespace tenon {

// Operands and result of one type (HostTakes), matrices or batches of them; `bias` a vector, or null.
void PlainMatmul(const TenonTensor& lhs, const TenonTensor& rhs, const TenonTensor* bias, const TenonTensor& out);

}  // namespace tenon
