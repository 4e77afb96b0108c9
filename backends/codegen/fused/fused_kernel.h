// FusedKernel: a fusion as code generation sees it: roots, iteration space, reductions, operand
// strides, kernel arguments.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "backends/codegen/fused/plan_loop.h"
#include "backends/codegen/index/index_map.h"
#include "backends/contract/kernel.h"

namespace tenon {

// How partial results of a reduction may be merged.
enum class Combine : uint8_t {
  kIdentity,   // one commutative op with a neutral element: partials start there
  kSelection,  // picks among its inputs (argmax), in any order the same: partials start at the
               // init value, any number of times
};
// nullopt: only a serial loop is right.
std::optional<Combine> CombineOf(const Instruction& reduce);
// The op of a kIdentity reduction.
Opcode CombineOpcode(const Instruction& reduce);

// Ops whose kernel is theirs alone, made of serial loops: the roots of such a fusion are the op's
// results (all or some of them, in any order), of a scan also what is made of its elements one by one. Elementwise producers may be in it
// too.
bool IsSerialOp(Opcode opcode);

enum class Role : uint8_t { kFull, kKept, kOther };

// Planning and emission walk a fusion's operands by recursion; what is larger is refused (and then split by the fuse pass).
constexpr int64_t kMaxFusedInstructions = 1000;

struct FusedKernel {
  const Computation* computation = nullptr;
  std::vector<const Instruction*> order;  // post-order
  absl::flat_hash_map<const Instruction*, int64_t> number;
  std::vector<OperandLayout> operands, results;
  std::vector<const Instruction*> roots;   // leaves of the result
  std::vector<const Instruction*> checks;  // tenon.check
  // A dynamic-update-slice of a parameter: the kernel only writes the update, into a copy. The root is the update then, stored from the
  // start indices on.
  const Instruction* updated = nullptr;
  // The serial op of the fusion, if it has one, and which of the op's results each root is; -1: made of a scan's elements.
  const Instruction* serial = nullptr;
  std::vector<int64_t> components;
  std::vector<LaunchPlan::Pair> copies;  // results that a scatter or update finds filled with an operand
  // The iteration space: dims of a full-shaped value; those reduced by every one of `reduces`
  // (empty: no reduction phase). Of a sort or scan: of its operand, the dim along which it runs
  // counts as reduced.
  std::vector<Dim> dims;
  std::vector<bool> reduced;
  std::vector<const Instruction*> reduces;
  // Scalar literals passed as arguments, behind size_args.
  absl::flat_hash_map<const Instruction*, int64_t> literal_of;
  std::vector<uint64_t> literals;
  std::vector<Dim> size_args;  // symbols

  bool MakesMoreOfScan() const { return std::find(components.begin(), components.end(), -1) != components.end(); }
  std::vector<Dim> KeptDims() const;
  Role RoleOf(const Shape& shape) const;
};

// The array that is result `root`.
const Shape& RootShape(const FusedKernel& fused, size_t root);

absl::StatusOr<FusedKernel> AnalyzeFusion(const KernelRequest& request);

class ByteStream;
// Everything about a fusion that its code depends on, but names, metadata and hoisted literals'
// values.
void AppendFingerprint(const FusedKernel& fused, ByteStream* out);
// The key is of its operations, their types and what reducers end with, another one in each process.
Likeness LikenessOf(const FusedKernel& fused);

// The loop variables of a plan and what they say about indices of values of the fusion.
struct Iteration {
  std::vector<Index> vars;  // per plan loop
  IndexTuple full, kept;    // into dims, KeptDims()

  Iteration(IndexSpace& space, const FusedKernel& fused, const std::vector<PlanLoop>& loops);
  // With these expressions, one per loop, in place of new variables.
  Iteration(IndexSpace& space, const FusedKernel& fused, const std::vector<PlanLoop>& loops,
            absl::Span<const Index> vars);
  // Index of the value of `shape` that belongs to this iteration.
  IndexTuple IndexOf(IndexSpace& space, const FusedKernel& fused, const Shape& shape) const;

 private:
  void SetIndices(IndexSpace& space, const FusedKernel& fused, const std::vector<PlanLoop>& loops);
};

// Row-major or layout strides as Dims; strides of parameter p come from operands[p].
std::vector<Dim> DenseStrides(absl::Span<const Dim> dims);

}  // namespace tenon
