// May a run write the new values of its inputs where the old ones lie?
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/execute/bound_program.h"

namespace tenon {

// Looks at the memory of the inputs that a program updates in place (ValueKind::kUpdate), and of those (and the framework constants)
// that it reads once it has begun to: none of the former may overlap any other of them. By the ends of each tensor's memory: what
// lies interleaved counts as overlapping. Keeps what it found for the next call, which mostly brings the same addresses. Not
// thread-safe; each frame has its own.
class UpdateOverlap {
 public:
  explicit UpdateOverlap(const BoundProgram& bound);

  bool Overlaps(const TenonTensor* inputs);

 private:
  struct Item {
    int32_t input = -1;  // -1: a framework constant
    bool updated = false;
    const char* data = nullptr;  // of the last call
    const char *begin = nullptr, *end = nullptr;
  };
  bool Refresh(const TenonTensor* inputs);
  bool Find();

  const bool static_sizes_;
  std::vector<Item> items_;  // mostly ascending by `begin`
  bool known_ = false, overlaps_ = false;
};

}  // namespace tenon
