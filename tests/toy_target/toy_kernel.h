// ToyKernel: a fused computation that is interpreted, element by element, by a grid of threads.
//
// The image of a toy's code is text, so that nothing but it connects the compiler with what runs: per kernel its symbol, the plan, how
// operands and results lie, and the computation as HLO.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/contract/kernel.h"
#include "hlo/module.h"
#include "runtime/execute/code_loader.h"

namespace tenon::toy {

// Thread t of block b makes the elements [k * each, (k + 1) * each) of every result, row-major, k being b * threads + t.
struct ToyPlan {
  int64_t elements = 0;  // of the largest result
  int64_t each = 3;
  int32_t threads = 32;
  int64_t shared_bytes_per_thread = 0;  // a reduction's values so far

  int64_t blocks() const { return (elements + each * threads - 1) / (each * threads); }
  std::string ToString() const;
};

// Can it be interpreted, by itself? Says why not.
absl::Status CanInterpret(const Instruction& op);

struct PlannedToy {
  ToyPlan plan;
  KernelInfo info;
  std::string text;  // what follows the symbol in the image
};
// Unimplemented: something of the fusion that is not interpreted, a reduction that others in it hang on, sizes that are symbols.
absl::StatusOr<PlannedToy> PlanToy(const KernelRequest& request);

void AppendKernel(std::string_view symbol, std::string_view text, std::vector<uint8_t>* image);

class ToyKernel;
absl::StatusOr<std::vector<std::shared_ptr<const ToyKernel>>> LoadKernels(std::span<const uint8_t> image,
                                                                          std::span<const std::string> symbols);
int64_t PointersOf(const ToyKernel& kernel);
// All blocks, in an order that no kernel may hang on.
absl::Status RunGrid(const ToyKernel& kernel, const std::vector<void*>& pointers, const KernelLaunch& launch);

}  // namespace tenon::toy
