// The custom calls that JAX emits for linear algebra and top-k on a CPU, computed plainly in complex<double>.
#pragma once

#include <map>
#include <string>

#include "hlo/eval/evaluator.h"

namespace tenon {

// "lapack_<s|d|c|z><potrf|getrf|trsm|geqrf|orgqr|ungqr>_ffi" and "TopK". Batched over leading dimensions.
std::map<std::string, EvalOptions::CustomCall, std::less<>> LapackCustomCalls();

}  // namespace tenon
