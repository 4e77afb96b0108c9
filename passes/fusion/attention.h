// Attention as HLO writes it by hand: a dot (queries times keys), elementwise ops on the scores, a softmax along the keys, a dot with the
// values. What of a computation is one, for the pass that fuses it (fuse-attention) and for kernels of it.
//
//   scores = f32[batch..., queries, keys] dot(q, k)
//   x      = elementwise ops on scores, with operands of any kind: scale, mask, bias, clamp; reshapes of the batch
//   exp    = exponential(x - broadcast(shift)), shift a function of maximum = reduce(x, -inf), maximum
//   weights = exp / broadcast(divisor), divisor a function of sum = reduce(exp, 0), add, and of the maximum; rounded to halves perhaps;
//             0 in rows of -inf alone, perhaps
//   values = f32[batch..., queries, columns] dot(weights, v)
#pragma once

#include <optional>
#include <vector>

#include "hlo/module.h"

namespace tenon {

struct Attention {
  const Instruction *scores = nullptr, *values = nullptr;
  const Instruction *x = nullptr, *exp = nullptr;
  const Instruction *maximum = nullptr, *sum = nullptr;
  const Instruction *shift = nullptr, *divisor = nullptr;  // values of a row, before they are spread
  bool rounds = false;                                     // the weights are halves on their way
  bool by_maximum = false;  // shift is the maximum, or something else where that is -inf: no exponential is more than 1
  // Rows whose weights are 0 instead: where the maximum is -inf; where the sum is 0.
  enum class Zeros : uint8_t { kNone, kNoMaximum, kNoSum } zeros = Zeros::kNone;
  // All of it, operands first, with the converts of halves that the dots read, and what the scores are computed with if that is read
  // nowhere else, or made of nothing.
  std::vector<Instruction*> inside;
  Instruction* result = nullptr;  // the dot with the values, or that rounded to another type
};

// The attention whose second dot is `values`; nullopt: that is none, or something else reads what is inside.
std::optional<Attention> AttentionOf(const Instruction& values);

}  // namespace tenon
