// BufferPlan: where every array value of the scheduled entry lives. Plain data; backends/ turns it into a Program.
//
// Live ranges over the schedule (framework steps and kernels alike), best fit into one arena, 64-byte aligned, in-place reuse
// where an elementwise consumer may overwrite its dying operand (same bytes, same index map; a slot's only where it is the
// call's alone), outputs written directly into
// their fresh memory, view ops sharing their operand's allocation. Values of framework calls with rule owned/view live in slots.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "hlo/module.h"

namespace tenon {

// One leaf (index in FlattenShape order) of an instruction's value.
struct BufferKey {
  const Instruction* instruction = nullptr;
  int64_t leaf = 0;
  bool operator==(const BufferKey&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const BufferKey& k) {
    return H::combine(std::move(h), k.instruction, k.leaf);
  }
};

struct Allocation {
  enum class Kind : uint8_t { kParameter, kConstant, kArena, kOutput, kSlot } kind = Kind::kArena;
  int64_t index = 0;     // parameter number / root leaf for kOutput / slot number
  const Instruction* constant = nullptr;
  Dim offset = 0, bytes = 0;  // kArena
  int64_t first = 0, last = 0;  // schedule positions, inclusive
};

struct BufferPlan {
  std::vector<Allocation> allocations;
  absl::flat_hash_map<BufferKey, int32_t> of;  // leaf -> allocation; view ops map to their root buffer's
  Dim arena_bytes = 0;
  Dim peak_live_bytes = 0;   // lower bound: max over the schedule of live bytes
  std::string ToString() const;  // table: instruction, kind, offset, bytes, live range
};

struct BufferPlanOptions {
  // True when leaf `leaf` of `op` is produced by a framework step that allocates (owned/view): it lives in a slot.
  std::function<bool(const Instruction& op, int64_t leaf)> in_slot;
  // Slots that nothing else can share memory with: a consumer may overwrite them in place with a value of the same shape.
  std::function<bool(const Instruction& op)> exclusive_slot;
  // Root leaves that may be written directly into output memory (fresh outputs, each memory once).
  std::function<bool(int64_t root_leaf)> direct_output;
  // Is the result a View of operand 0's buffer? Default IsViewOp (passes/fused_form.h). An op of which it says no and that is
  // no fusion gets its own buffer.
  std::function<bool(const Instruction& op)> is_view;
  bool in_place = true;
};
absl::StatusOr<BufferPlan> PlanBuffers(const Module& module, const BufferPlanOptions& options);

}  // namespace tenon
