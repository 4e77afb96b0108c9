// Work: what a planned kernel asks of a machine, and what that takes. Made from the plan, hlo/cost_ops and the kernel's accesses to memory;
// the machine's half are the fields of its MachineModel, nothing else.
//
// A kernel's time on one thread is what its instructions take, in vector multiply-adds' worth ("slots"), or what its bytes take from the
// smallest level of memory that holds them all, whichever is more, and a part of the other, as cores do both at once but never wholly.
#pragma once

#include "backends/codegen/fused/fused_kernel.h"
#include "backends/codegen/plan/kernel_plan.h"
#include "backends/cpu/plan/target.h"

namespace tenon {

struct KernelWork {
  int64_t bytes = 0, flops = 0;  // read and written, computed (hlo/cost_ops); of typical sizes (hlo/dim/dim.h) where they are symbolic
  double streamed = 0;           // bytes as memory moves them: whole cache lines where single elements are wanted
  double resident = 0;           // bytes among which it looks for them: what has to be held by a level
  double slots = 0;              // instructions, in vector multiply-adds
  int64_t arrays = 0;            // operands and results
};
KernelWork WorkOf(const FusedKernel& fused, const KernelPlan& plan, int vector_bytes);

// What it takes when so many threads share it evenly, in ns; what starting it costs included.
double NanosecondsOf(const KernelWork& work, const CpuTarget& target, int threads = 1);

struct WorkEstimate {
  int64_t bytes = 0, flops = 0;  // KernelWork's
  double nanoseconds = 0;        // one thread
  Dim units = 1;                 // size of the outer range
  Dim grain = 1;                 // units that are worth a thread
};
WorkEstimate EstimateWork(const FusedKernel& fused, const KernelPlan& plan, const CpuTarget& target);

}  // namespace tenon
