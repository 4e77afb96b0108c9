// BufferPlan: where every array value of a scheduled module lives, its regions included. Plain data; backends/ turns it into a
// Program.
//
// Live ranges over one line of time (live_ranges.h), best fit into one arena, 64-byte aligned (hlo/arena.h). Buffers whose values are never
// alive together may be one: where a kernel's plan lets a result overwrite a dying operand (LaunchPlan::may_overwrite; a slot's
// only where it is the call's alone), where a loop's new state or a branch's result can be made in place, where an initial value
// becomes the state. Outputs are written directly into their fresh memory, views share their buffer's allocation
// (value_views.h). Values of framework calls with rule owned/view live in slots, but for what written operands hold.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "hlo/module.h"
#include "passes/lower/launch_plan.h"

namespace tenon {

class ValueViews;

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
  int64_t index = 0;     // leaf of the entry's parameters, all in a row / root leaf for kOutput / slot number
  const Instruction* constant = nullptr;
  int64_t offset = 0;  // kArena; in what lends it memory if there is one
  int32_t lender = -1;  // of kArena: an allocation of kind kOutput whose value is written later than this is read
  Dim bytes = 0;
  int64_t first = 0, last = 0;  // positions in LiveRanges, inclusive; -1: merged into another
  int64_t buffers = 1;          // how many owners of a buffer share it
  int64_t space = 0;            // the memory it lies in; only allocations of one space share any
};

// A copy that the plan asks for: `from` (or a temporary) into the whole buffer of `to` (or into a temporary, which takes the dims of
// `from`).
struct BufferMove {
  BufferKey from, to;
  int32_t from_temporary = -1, to_temporary = -1;  // allocations
};

struct BufferPlan {
  std::vector<Allocation> allocations;
  absl::flat_hash_map<BufferKey, int32_t> of;  // leaf -> allocation; views map to their buffer's. No tuples
  // Allocations of Launches::temporaries, alive at their instruction alone.
  absl::flat_hash_map<const Instruction*, std::vector<int32_t>> temporaries;
  // In order. Initial values into a while's state; at the end of a body or branch its results into state or results.
  absl::flat_hash_map<const Instruction*, std::vector<BufferMove>> initial_moves;
  absl::flat_hash_map<const Computation*, std::vector<BufferMove>> final_moves;
  // Buffers that lie in the memory of a parameter, whose last reader writes them: owner, leaf of the entry's parameters. No step that may
  // fail (checks, calls of framework and library, control flow) comes after one of the writers, unless it is a call that writes operands.
  std::vector<std::pair<BufferKey, int64_t>> updates;
  absl::flat_hash_map<const Instruction*, int64_t> positions;  // of the instructions of all regions, as allocations count them
  int64_t arena_bytes = 0;  // of the host's memory
  std::vector<std::pair<int64_t, int64_t>> device_arenas;  // space, bytes
  // Spaces with arenas some of whose buffers' sizes are expressions: each call places them anew (hlo/arena.h). Offsets and bytes here are
  // those of typical sizes.
  absl::flat_hash_set<int64_t> symbolic_arenas;
  int64_t peak_live_bytes = 0;  // max over the schedule of live bytes, lent memory included
  std::string ToString() const;  // table: instruction, kind, offset, bytes, live range; the moves of each region
};

struct BufferPlanOptions {
  // True when leaf `leaf` of `op` is produced by a framework step that allocates (owned/view): it lives in a slot.
  std::function<bool(const Instruction& op, int64_t leaf)> in_slot;
  // Root leaves that may be written directly into output memory (fresh outputs, each memory once).
  std::function<bool(int64_t root_leaf)> direct_output;
  // The leaf of the entry's parameters into whose memory this root leaf goes in the end, and may be written before: nothing but what
  // the module says reads that memory. Null: none.
  std::function<std::optional<int64_t>(int64_t root_leaf)> update;
  // Does this custom call give a result whatever the values of its operands (FrameworkStep::total)? It may follow updates then. Null: no.
  std::function<bool(const Instruction& call)> is_total;
  // Say which results may overwrite an operand, and which are the host's (they live in slots, that consumers may overwrite with a value of
  // the same shape). Null: none.
  const LaunchPlans* plans = nullptr;
  const ValueViews* views = nullptr;  // null: by the layouts alone
  bool spaces = false;  // shapes say which memory values lie in (passes/spaces/spaces.h); else all lie in the host's
  bool in_place = true;
};
// Wants a scheduled module in which each region has one caller (pass flatten-control-flow).
absl::StatusOr<BufferPlan> PlanBuffers(const Module& module, const BufferPlanOptions& options);

}  // namespace tenon
