// Cost analysis: what a module computes and moves, by instruction and in all. An estimate of work, not of time.
//
//  flops             one per element of an elementwise op (integer ops too), two per product of a contraction (padding not
//                    counted), the region's own count per application in reductions, sorts, scatters; 5 n log2 n per FFT
//  transcendentals   elements of exponential, log, sine, power, square root and their kin: counted here and not in flops
//  bytes             read and written: operands and result once each. Slices, gathers and updates count what they touch,
//                    a fusion its outside, renamings (tuple, bitcast, reshape) nothing
//  peak_bytes        most memory alive at once when the instructions run in the module's order, the arguments and the
//                    result included; renamings share their operand's memory, a while's state is updated in place
//
// A while counts its trips where they are known: from backend_config's known_trip_count, or from a counter compared with a
// constant; else one trip, and `unknown_trips` says so. Of a conditional's branches the costliest counts.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "hlo/module.h"

namespace tenon {

struct Cost {
  double flops = 0, transcendentals = 0, bytes = 0;
};

struct InstructionCost {
  const Instruction* instruction;
  Cost cost;               // of one execution, callees included
  double executions = 1;   // in one run of the module
  double output_bytes = 0;
};

struct ModuleCost {
  Cost total;
  double peak_bytes = 0, argument_bytes = 0, output_bytes = 0;
  int64_t unknown_trips = 0;                  // while loops counted as one trip
  std::vector<InstructionCost> instructions;  // entry first, then callees that run as themselves (not fused, not applied)
};

// Unimplemented: a dimension that isn't constant.
absl::StatusOr<ModuleCost> AnalyzeCost(const Module& module);

std::string ToJson(const ModuleCost& cost);
// A table for people, costliest first; `rows` < 0: all.
std::string ToTable(const ModuleCost& cost, int64_t rows = -1);

}  // namespace tenon
