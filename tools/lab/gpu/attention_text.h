// Modules of hand-written attention, as frameworks write it.
#pragma once

#include <string>
#include <vector>

#include "hlo/literal.h"
#include "hlo/module.h"

namespace tenon::gpu {

enum class AttentionMask : uint8_t {
  kNone,
  kBias,       // a bias is added, of each batch element
  kCausal,     // keys behind the query are -inf
  kPredicate,  // -1e9 where an operand's predicate, of all queries, is false
  kGuarded,       // a bias; rows of -inf alone are 0
  kShiftGuarded,  // a bias; rows of -inf alone are shifted by 0, and divided by 1
};

struct AttentionSizes {
  std::string type = "f32";  // of the operands, the weights and the result; the softmax is of f32
  int64_t batch = 2;         // 0: no such dim
  int64_t queries = 128, keys = 96, terms = 64, columns = 64;
  AttentionMask mask = AttentionMask::kNone;
  bool turned = false;  // keys lie with their terms outside, values with their columns outside
};

// Parameters q, k, v, and the bias or predicate.
std::string AttentionText(const AttentionSizes& sizes);
// Numbers of a few bits around zero, whose scores are exact.
std::vector<Literal> AttentionInputs(const Module& module, uint64_t seed);

}  // namespace tenon::gpu
