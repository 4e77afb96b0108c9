// What a program for a GPU does, and what eager would do in its place: launches, bytes, work. Counted from the program and the graph;
// nothing is measured.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "runtime/program/program.h"
#include "torch_plugin/aten/graph.h"

namespace tenon::report {

struct Rates {
  double bytes_per_ns = 4300;         // memory
  double half_flops_per_ns = 790000;  // products of bf16 and f16
  double flops_per_ns = 66900;        // f32: kernels, and products without TF32; f64 products at half of it
  double launch_ns = 2000;            // of one more step in a stream
};

struct Costs {
  int64_t launches = 0, kernels = 0;             // of generated kernels; different ones
  std::map<std::string, int64_t> library;        // calls: "cublaslt.matmul"
  std::map<std::string, int64_t> framework;      // operators of the framework on the device
  std::map<std::string, int64_t> host;           // what the host computes, by kind or operator
  int64_t copies = 0, host_copies = 0;           // on the device; to and from the host's memory
  double kernel_bytes = 0, library_bytes = 0, framework_bytes = 0, copy_bytes = 0, host_copy_bytes = 0;
  double flops = 0;                              // of contractions and attention
  double busy_ns = 0;                            // each step by memory or work, whichever takes longer; without launches
  int64_t workspace_bytes = 0, arena_bytes = 0;  // the largest of a call; of the device
  int64_t steps() const;                         // that the device does
};
Costs CostsOf(const Program& program, const Rates& rates);

struct EagerCosts {
  int64_t nodes = 0, launches = 0;  // of them those that are no views
  double bytes = 0;                 // of their operands and results, once each; of tables what is picked
};
EagerCosts EagerCostsOf(const aten::Graph& graph);

}  // namespace tenon::report
