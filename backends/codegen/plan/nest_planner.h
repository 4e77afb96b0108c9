// NestPlanner: the part of planning a fusion that is the same for every target: its loops in an order and merged, how wide its vectors may
// be, in which passes reductions are finished and what a pass keeps for later ones. A target's planner derives from it and decides the
// rest.
#pragma once

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "backends/codegen/fused/fused_kernel.h"
#include "backends/codegen/index/access_trace.h"
#include "backends/codegen/plan/kernel_plan.h"

namespace tenon {

// Emitted instructions, about, for an element of `op`.
int CostOf(const Instruction& op);
// Some region branches, or has arrays: such a fusion is computed by scalars.
bool OnScalars(const FusedKernel& f);

// What a target is to this part.
struct NestNumbers {
  int vector_bytes = 16;
  bool masked_tail = false;          // KernelPlan's
  int64_t max_kept_bytes = 0;        // of values that a pass over a row keeps for later ones
  bool keeps_reads = false;          // of those also what is cheap to compute, but read
  bool keeps_in_results = false;     // what is too much for that, in the memory of a root that the last pass stores
  bool keeps_symbolic = false;       // of rows of symbolic length, too: each pass is emitted twice
};

class NestPlanner {
 public:
  NestPlanner(const FusedKernel& fused, const NestNumbers& numbers) : f_(fused), numbers_(numbers) {}

 protected:
  bool IsFullShaped(const Instruction& op) const;
  bool VectorExtentBelow(int64_t n) const;
  // One loop per dim, the memory order of the result (loops) or of the operand read at every index (reductions). Sets the kind, too.
  void OrderLoops();
  // Neighbours become one loop where no index needs a division for it.
  void MergeLoops();
  void ChooseLanes();
  // The dim that the pieces of a scatter share becomes a loop of its own: the last one in blocks if it is the fastest, else the first.
  void CutScatter();
  int BodyCost() const;
  // The contraction of a fusion that has one, of the result's shape.
  const Instruction* Contraction() const;
  // Of a contraction: several sums side by side, along a loop that an operand read as vectors does not depend on, so that a vector is
  // loaded once for all of them. That loop comes next to the vector loop; all others are the outer range.
  void ContractionNest();
  // Reductions and roots by passes; of row kernels, what passes keep.
  void MakePhases();

  const FusedKernel& f_;
  NestNumbers numbers_;
  KernelPlan plan_;

 private:
  static bool StrideGreater(Dim a, Dim b);
  static int64_t ContiguousExtent(const MemoryUse& use, const Iteration& iteration);
  static const MemoryUse* ReadAlongALongerLoop(const AccessTrace& trace, const Iteration& iteration, const MemoryUse& store);
  struct Divisions {
    int all, dear;  // AccessTrace's
    bool NoMoreThan(const Divisions& other) const { return all <= other.all && dear <= other.dear; }
  };
  Divisions DivisionsOf(const std::vector<PlanLoop>& loops) const;
  static PlanLoop Merged(const PlanLoop& a, const PlanLoop& b);
  bool GathersWindows() const;
  static bool IsWidenedForSums(const Instruction& op);
  int64_t PassOf(const Instruction* op);
  absl::flat_hash_set<const Instruction*> Cone(const PlanPhase& phase) const;
  int ConeCost(const Instruction* op, absl::flat_hash_set<const Instruction*>& seen) const;
  bool ReadsAgain(const Instruction* op, absl::flat_hash_set<const Instruction*>& seen) const;
  void ChooseKept();
  bool IsKept(const Instruction* op) const;
  void Keep(const Instruction* op, size_t phase, int64_t row);
  void KeepInResult(const Instruction* op, size_t phase);

  absl::flat_hash_map<const Instruction*, int64_t> pass_;
};

}  // namespace tenon
