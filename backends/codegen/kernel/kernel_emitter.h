// KernelEmitter: values of a fusion at an index, as LLVM IR inside a nest of loops.
//
// Eval(op, index) emits the element(s) of `op` at `index`, whose expressions are over loop
// variables; movement ops only map the index. A value is emitted at the outermost loop level on
// which its operands are known (so that nothing needs hoisting), once per (op, index): the memo of
// each open level is searched first. Where the vector variable occurs in the index the value is a
// vector of `lanes`, elsewhere a scalar; where the unroll variable occurs there are `copies` of it,
// else one.
//
// Errors are sticky: the first is kept, values become poison, status() tells at the end.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "backends/codegen/emit/emit_types.h"
#include "backends/codegen/fused/fused_kernel.h"
#include "backends/codegen/index/index_map.h"
#include "hlo/module.h"
#include "llvm/IR/IRBuilder.h"

namespace tenon {

// Emitted value: scalar or vector, one or `copies` of it, valid from loop level `level` inwards.
struct Val {
  llvm::SmallVector<llvm::Value*, 4> v;
  int level = 0;
  llvm::Value* at(size_t copy) const { return v.size() == 1 ? v[0] : v[copy]; }
  bool is_vector() const { return IsVectorType(v[0]->getType()); }
};

// Bounds under which a value is wanted: lanes outside are never used, so loads must not touch
// memory there.
struct Guard {
  const Guard* parent = nullptr;  // holds too, and is checked first
  std::vector<IndexBound> bounds;
};

// How the innermost loops are being emitted.
struct LaneMode {
  int lanes = 1;
  int copies = 1;
  int vector_var = -1;  // index variable that the lanes advance
  int unroll_var = -1;  // index variable that the copies advance, by `unroll_step`
  int64_t unroll_step = 1;
  int across = 1;  // vectors side by side: copy c is vector c % across of iteration c / across of unroll_var
  int level = 0;  // of the loop: vectors are remembered no longer than it is open
  llvm::Value* remaining =
      nullptr;  // masked tail: elements left from lane 0 of copy 0 on, i64, at least 1
  llvm::SmallVector<llvm::Value*, 4>
      masks;  // masked tail: live lanes, per vector if copies advance the vector variable

  bool AlongVectors() const { return unroll_var == vector_var; }
  int vectors() const { return AlongVectors() ? copies : across; }
  // How far `copy` is ahead of copy 0 along variable `var`.
  int64_t Ahead(int var, int copy) const {
    const int64_t along = var == unroll_var ? copy / across * unroll_step : 0;
    return along + (across > 1 && var == vector_var ? int64_t{copy % across} * lanes : 0);
  }
  bool Advances(Index e) const {
    return copies > 1 && ((unroll_var >= 0 && e->DependsOn(unroll_var)) || (across > 1 && e->DependsOn(vector_var)));
  }
};

struct KernelSpecs {
  int vector_bytes = 16;
  EmitOptions types;
  bool has_fma = false;
  bool prefetches = true;  // the code may ask the first cache for what comes next
  // A few elements some places apart are picked from the vectors that lie there, with what is between. Not where other threads may be
  // writing that at the same time, in place.
  bool reads_between = true;
};

// What a kernel's function finds when it is called: how the target hands over memory and work. Values of its entry block.
struct KernelEntry {
  llvm::Value* pointers = nullptr;  // to the pointers to operands, results and error word, in this order
  llvm::Value* args = nullptr;      // to sizes and literals, i64
  llvm::Value* begin = nullptr;     // [begin, end): the units of the outer range that this call computes
  llvm::Value* end = nullptr;
  llvm::Value* scratch = nullptr;   // of this call, or of this team; null: the plan has none
  bool one_unit = false;            // the range has one unit: no loop goes over it
  unsigned address_space = 0;       // LLVM's, of what the pointers point to
  // By operand, result and error word: which of the pointers is its, -1 for none, which this kernel does not use. Empty: in this order.
  std::vector<int> words;
  // By pointer: it begins where any vector may, so that whole vectors' loads and stores are told how they lie. Scratch does, too, if it is
  // not empty.
  std::vector<bool> aligned;
};

// Threads that compute a unit together: each has all of the kernel's scalars, and its own share of the vectors. One alone has no team.
struct KernelTeam {
  int64_t size = 1;               // a power of two
  llvm::Value* rank = nullptr;    // of this thread, i64
  // The values of all threads, merged as one tree whatever the grid; each thread has the result. All of them must call it.
  using Merge = std::function<std::vector<llvm::Value*>(const std::vector<llvm::Value*>&, const std::vector<llvm::Value*>&)>;
  std::function<std::vector<llvm::Value*>(std::vector<llvm::Value*>, const Merge&)> all_merge;
};

// Element i of `literal` as a register value of `type`.
llvm::Constant* ScalarConstant(llvm::Type* type, PrimitiveType element, const Literal& literal,
                               int64_t i);

class KernelEmitter {
 public:
  // `enter` makes the entry's values, in the empty entry block of `function`.
  KernelEmitter(const FusedKernel& fused, const KernelSpecs& specs, llvm::Function* function,
                const std::function<KernelEntry(llvm::IRBuilder<>&)>& enter);

  const FusedKernel& fused() const { return fused_; }
  IndexSpace& space() { return space_; }
  const KernelSpecs& specs() const { return specs_; }
  absl::Status status() const { return status_; }
  void Fail(absl::Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  // Seals the function: flags of checks, return, allocas to registers.
  absl::Status Finish();

  llvm::Value* begin() const { return entry_.begin; }
  llvm::Value* end() const { return entry_.end; }
  // body(unit) for those of [begin, end).
  void ForUnits(const std::function<void(llvm::Value* unit)>& body);
  const KernelTeam& team() const { return team_; }
  void set_team(KernelTeam team) { team_ = std::move(team); }
  // Who computes nothing leaves, before it has read anything but sizes: nothing is emitted yet. `condition`: it stays.
  void LeaveUnless(llvm::Value* condition);
  // By one thread of the team.
  void ByOne(const std::function<void()>& body);
  // By the call that has unit 0.
  void ByFirst(const std::function<void()>& body);

  // ---- loops ----
  // The builder at the end of what is emitted for `level` so far (default: the innermost open one).
  llvm::IRBuilder<>& At(int level);
  llvm::IRBuilder<>& Here() { return At(innermost()); }
  int innermost() const { return static_cast<int>(levels_.size()) - 1; }
  void BindVar(Index var, llvm::Value* value) { vars_[var->var] = {value, innermost()}; }
  // for (v = lo; v < hi; v += step) body(v).
  void Loop(llvm::Value* lo, llvm::Value* hi, llvm::Value* step,
            const std::function<void(llvm::Value*)>& body);
  // The same `times` bodies a round, as long as whole rounds fit: body(k) at v + k * step, with values of its own. Returns where it ends.
  llvm::Value* Rounds(Index var, llvm::Value* lo, llvm::Value* hi, int64_t step, int64_t times, const std::function<void(int64_t)>& body);
  // The last place that whole multiples of `step` (a power of two) reach from `lo`, which is not above `hi`.
  llvm::Value* Floor(llvm::Value* lo, llvm::Value* hi, int64_t step);
  void LoopOver(Index var, llvm::Value* lo, llvm::Value* hi, int64_t step,
                const std::function<void()>& body);
  // Vectors of `lanes` x `unroll` over [lo, hi), then the tail; `body` is emitted once for each
  // mode. hi - lo is known to be a multiple of `multiple`. A heavy body is emitted fewer times.
  struct VectorLoopOptions {
    int lanes = 1, unroll = 1;
    bool masked_tail = false, heavy = false;
    int64_t multiple = 1;
    bool shared = false;  // among the team, whose threads take vectors in turn
  };
  // `body` for the lanes from `at` on, those below `limit`, of which there is one; nullptr: all.
  void OneVector(Index var, int64_t at, int lanes, llvm::Value* limit, const std::function<void()>& body);
  void VectorLoop(Index var, llvm::Value* lo, llvm::Value* hi, const VectorLoopOptions& options,
                  const std::function<void()>& body);
  void If(llvm::Value* condition, const std::function<void()>& then);
  // A level of its own, which holds what is made in it: values are remembered no longer, and lane modes may name it.
  void InLevel(const std::function<void()>& body) { If(Here().getTrue(), body); }
  // while (condition()) body(): state lives in allocas.
  void While(const std::function<llvm::Value*()>& condition, const std::function<void()>& body);
  // The second operand of contraction `op` lies in scratch: element (s, c) at base[s * block + c], s the place in the order of the summed
  // loops, c = `column`.
  struct PackedOperand {
    const Instruction* op = nullptr;
    llvm::Value* base = nullptr;
    int level = 0;
    Index column = nullptr;
    int64_t block = 0;
  };
  void set_packed(const PackedOperand& packed) { packed_ = packed; }
  const LaneMode& mode() const { return mode_; }
  void set_mode(const LaneMode& mode) { mode_ = mode; }
  // Where the copies of the mode begin along variable `var`, if that is known: first, first + step, ..., last. Where the loop has a
  // symbolic length these are the places for its typical one, `typical`: code is made for them, and for the others.
  struct TileStarts {
    int var = -1;
    int64_t first = 0, last = 0, step = 1, typical = -1;
  };
  void set_tile_starts(const TileStarts& starts) { tile_starts_ = starts; }
  // Lanes of the tail that are live in `copy`; nullptr: all.
  llvm::Value* LaneMask(int copy = 0) const {
    if (mode_.masks.empty()) return nullptr;
    return mode_.masks[mode_.masks.size() == 1 ? 0 : static_cast<size_t>(copy) % mode_.masks.size()];
  }
  // The mode's masks, by its `remaining`; mostly_whole: of a loop of which all iterations but the last have whole vectors.
  void MakeMasks(bool mostly_whole = false);
  llvm::AllocaInst* Alloca(llvm::Type* type);

  // ---- values ----
  Val Eval(const Instruction* op, const IndexTuple& index, const Guard* guard = nullptr,
           int component = 0);
  // Declares the value of (op, index) known from here on, e.g. a finished reduction.
  void Define(const Instruction* op, const IndexTuple& index, int component, Val value);
  // A finished reduction or a kept value that lies in scratch: element `offset` of `base` (type by
  // component).
  struct InMemory {
    llvm::Value* base;
    int level;
    Index offset;
    PrimitiveType type;  // stored as StorageType says
  };
  void DefineInMemory(const Instruction* op, const IndexTuple& index, int component,
                      InMemory where);
  void ForgetInMemory() { in_memory_.clear(); }
  // `guard` and these bounds, those that always hold left out.
  const Guard* Under(const Guard* guard, absl::Span<const IndexBound> bounds);
  // What `guard` asks of sizes alone.
  const Guard* OfSizes(const Guard* guard);
  // Memory values (emit_types.h) of base[offset]; lanes and copies as the index asks.
  Val LoadElements(llvm::Value* base, int base_level, llvm::Type* element, Index offset,
                   const Guard* guard);
  // What to do with a load that a transpose kernel has turned in registers.
  using LoadHook = std::function<std::optional<Val>(const Instruction* parameter, Index offset)>;
  LoadHook load_hook;
  // A load_hook: loads of large operands ask the first cache for what will be loaded `steps` further along `var`, which may lie
  // outside of the operand.
  void PrefetchAhead(Index var, int64_t steps);
  // Asks the first cache for the elements of `parameter` at `offset`, a vector or several.
  void Prefetch(const Instruction& parameter, Index offset);

  // Where the mode's vector at `offset` begins, if it is one access of its full size; null: it may lie otherwise.
  llvm::Value* VectorPointer(llvm::Value* base, llvm::Type* element, Index offset);

  void StoreElements(llvm::Value* base, int base_level, llvm::Type* element, Index offset,
                     const Val& value);

  Val BoundsHold(absl::Span<const IndexBound> bounds, const Guard* guard);
  Val LoadResult(int result, Index offset);
  void StoreResult(int result, Index offset, const Val& value);
  // Vectors that lie between each other: element i of part c belongs at offsets[c], which is offsets[0] + c, and i steps of as many
  // elements as
  // there are parts. False, and nothing done, if they lie otherwise.
  bool StoreInterleaved(int result, absl::Span<const Index> offsets, absl::Span<const Val> parts);
  // Stores register values (not narrowed) at base[offset]: scratch.
  void StoreRaw(llvm::Value* base, int level, Index offset, PrimitiveType type, const Val& value);
  Val LoadRaw(const InMemory& where);
  llvm::Value* ResultPointer(int result) {
    return pointers_[fused_.operands.size() + static_cast<size_t>(result)];
  }
  PrimitiveType ResultType(int result) const;
  llvm::Value* OperandPointer(int operand) { return pointers_[static_cast<size_t>(operand)]; }
  llvm::Value* ScratchPointer(int64_t byte_offset);

  // Sets the error word at the end of the kernel if any live lane of `condition` is true.
  void Check(const Instruction* check, const Val& condition);

  // `computation` on values; scalars are widened where operands differ. An argument that it doesn't
  // use may be null. In a reduction (`merging`) it is open which zero max(-0, +0) gives.
  std::vector<llvm::Value*> Apply(llvm::IRBuilder<>& b, const Computation& computation,
                                  std::span<llvm::Value* const> args, bool merging);
  // The neutral element of a kIdentity reduction, or its init value; scalar.
  llvm::Value* PartialStart(const Instruction& reduce, int component);

  llvm::Value* EmitDim(Dim d);
  llvm::Value* I64(int64_t c) { return llvm::ConstantInt::getSigned(i64_, c); }
  llvm::Type* VectorOf(llvm::Type* element) const {
    return WithLanes(element, static_cast<unsigned>(mode_.lanes));
  }
  llvm::LLVMContext& context() { return function_->getContext(); }
  // `value` as a vector of the mode's lanes.
  llvm::Value* Splat(llvm::Value* value, int level);
  bool IsVectorIndex(Index e) const {
    return mode_.lanes > 1 && mode_.vector_var >= 0 && e->DependsOn(mode_.vector_var);
  }
  bool IsUnrolledIndex(Index e) const { return mode_.Advances(e); }
  // i64 value of `e` in lane 0.
  Val ScalarIndex(Index e, const Guard* guard = nullptr);
  // Per lane; i32 where that is known to suffice, else i64.
  Val VectorIndex(Index e, const Guard* guard = nullptr);

 private:
  struct Key {
    const Instruction* op;
    std::vector<Index> index;
    const Guard* guard;
    int component;
    bool operator==(const Key&) const = default;
    template <typename H>
    friend H AbslHashValue(H h, const Key& k) {
      return H::combine(std::move(h), k.op, k.index, k.guard, k.component);
    }
  };
  // The last is the mode's, if the expression depends on its variables.
  using IndexKey = std::tuple<Index, const Guard*, int>;
  IndexKey KeyOf(Index e, const Guard* guard) const {
    const bool varies = IsVectorIndex(e) || IsUnrolledIndex(e);
    return {e, guard, varies ? (mode_.vector_var + 1) * 100 + mode_.unroll_var + 1 : 0};
  }
  struct Level {
    llvm::BasicBlock* block;
    llvm::Instruction* before = nullptr;  // the branch into the open inner loop; nullptr: append
    absl::flat_hash_map<Key, Val> memo;
    absl::flat_hash_map<IndexKey, Val> scalar_index, vector_index;
    absl::flat_hash_map<std::pair<llvm::Value*, int>, llvm::Value*> splats;
    absl::flat_hash_map<std::pair<llvm::Value*, Index>, std::pair<llvm::Value*, int>>
        outer_pointers;
    absl::flat_hash_map<const Guard*, Val> conditions;
  };
  struct VarBinding {
    llvm::Value* value = nullptr;
    int level = 0;
  };

  Val EvalUncached(const Instruction* op, const IndexTuple& index, const Guard* guard,
                   int component);
  Val EvalElementwise(const Instruction* op, const IndexTuple& index, const Guard* guard);
  // bitcast-convert between widths (kernel_bits.cc).
  Val EvalJoinedBits(const Instruction* op, const IndexTuple& index, const Guard* guard);
  Val EvalSplitBits(const Instruction* op, const IndexTuple& index, const Guard* guard);
  Val EvalConstant(const Instruction* op, const IndexTuple& index, const Guard* guard);
  Val EvalIota(const Instruction* op, const IndexTuple& index, const Guard* guard);
  Val EvalWindowed(const Instruction* op, const IndexTuple& index,
                   const Guard* guard);  // pad, dynamic-update-slice
  Val EvalConcatenate(const Instruction* op, const IndexTuple& index, const Guard* guard);
  Val EvalReduce(const Instruction* op, const IndexTuple& index, const Guard* guard, int component);
  Val EvalReduceWindow(const Instruction* op, const IndexTuple& index, const Guard* guard,
                       int component);
  // kernel_contraction.cc
  Val EvalContraction(const Instruction* op, const IndexTuple& index, const Guard* guard);
  struct Contraction;
  struct CopyRange {
    int first, end;
    bool operator==(const CopyRange&) const = default;
  };
  struct AlongTile;
  struct StepsAlong;
  // Tiles of which the same is inside, per step: those at `starts`; where sizes are symbolic those at `start`, or `room` elements before
  // the end of what they run along, or, without, beyond reach of the border at that end.
  struct TileSet {
    std::vector<int64_t> starts;
    std::vector<CopyRange> inside;
    std::optional<int64_t> start, room;
    bool operator==(const TileSet&) const = default;
  };
  bool KnowsTileStarts() const;
  std::optional<AlongTile> AlongTheTile(const IndexBound& bound, absl::Span<const Index> taps) const;
  std::optional<StepsAlong> AlongTheTile(absl::Span<const Contraction> steps) const;
  bool InOrder(const Contraction& c) const;
  std::optional<std::vector<CopyRange>> InsideRanges(const Contraction& c) const;
  std::vector<TileSet> TileSets(const std::vector<Contraction>& steps) const;
  std::vector<TileSet> TypicalTileSets(const std::vector<Contraction>& steps) const;
  llvm::Value* IsOf(const TileSet& set, const std::vector<Contraction>& steps);
  void SortBounds(Contraction& c);
  bool EmitTapsAtOnce(const Contraction& c);
  void EmitTaps(const Contraction& c, size_t tap);
  void EmitTap(const Contraction& c);
  void EmitTerms(const Contraction& c, const Guard* inside, const Val* wanted);
  void Accumulate(const Contraction& c, const Guard* inside, const Val* wanted);
  llvm::Value* MultiplyAdd(PrimitiveType type, llvm::Value* x, llvm::Value* y, llvm::Value* sum);
  // One application of to_apply after the other: `walk` calls its argument for each. Results of all components.
  using Walk = std::function<void(const std::function<void()>& accumulate)>;
  std::vector<Val> SerialReduce(const Instruction* op, const IndexTuple& kept, const Walk& walk,
                                const std::function<std::vector<Val>()>& values,
                                const std::function<std::optional<Val>()>& condition);
  Walk Nest(std::vector<Index> vars);  // serial loops, the last innermost
  // ---- regions (kernel_region.cc) ----
  bool IsGeneral(const Computation& region);
  // One value per leaf of the parameters; per leaf of the root.
  std::vector<llvm::Value*> ApplyGeneral(const Computation& region,
                                         std::span<llvm::Value* const> args);
  // Where the guard doesn't hold, nothing is run.
  std::vector<llvm::Value*> ApplyUnder(const Guard* guard, const Computation& region,
                                       std::span<llvm::Value* const> args);
  void AccumulateGeneral(const Instruction& reduce, const std::vector<Val>& values,
                         const std::optional<Val>& wanted,
                         const std::vector<std::vector<llvm::AllocaInst*>>& slots);
  std::vector<llvm::AllocaInst*> Slots(const Shape& shape);  // zero, one per leaf
  std::vector<llvm::Value*> Load(std::span<llvm::AllocaInst* const> slots);
  Val DefineLeaves(const Instruction* op, const Guard* guard,
                   const std::vector<llvm::Value*>& leaves, int component);
  Val EvalWhile(const Instruction* op, const Guard* guard, int component);
  Val EvalConditional(const Instruction* op, const Guard* guard, int component);
  llvm::Value* Retyped(llvm::IRBuilder<>& b, const Instruction& op, llvm::Value* v);
  Val SelectVal(const Val& condition, const Val& a, const Val& b);
  Val Condition(const Guard* guard);  // all of it, parents included
  Val EmitBound(const IndexBound& bound, const Guard* guard);
  Val LanesWithin(const IndexBound& bound, int64_t stride, const Guard* guard);
  // The guard's bounds that are the same for all lanes, and the others; null: none. Where an index is read from memory all are others.
  std::pair<const Guard*, const Guard*> SplitByLanes(const Guard* guard);
  Val Binary(const Val& a, const Val& b,
             const std::function<llvm::Value*(llvm::IRBuilder<>&, llvm::Value*, llvm::Value*)>& f);
  Val ScalarIndexUncached(Index e, const Guard* guard);
  Val VectorIndexUncached(Index e, const Guard* guard, bool narrow);
  Val RuntimeValue(Index e, const Guard* guard, bool vector);
  bool FitsI32(Index e) const;

  // Pointer to element `offset` (lane 0) for each copy.
  Val ElementPointer(llvm::Value* base, int base_level, llvm::Type* element, Index offset,
                     const Guard* guard);
  llvm::Align AlignOfVectors(llvm::Value* base, llvm::Type* element, Index offset) const;
  llvm::Value* Dummy();  // memory that may always be read
  llvm::Value* Never();  // false, which LLVM does not know
  llvm::Value* And(llvm::IRBuilder<>& b, llvm::Value* a, llvm::Value* c);
  bool HasMaskedMemory(llvm::Type* element) const;

  const FusedKernel& fused_;
  KernelSpecs specs_;
  llvm::Function* function_;
  KernelEntry entry_;
  KernelTeam team_;
  IndexSpace space_;
  llvm::IRBuilder<> builder_;
  llvm::Type* i64_;
  std::vector<Level> levels_;
  std::vector<VarBinding> vars_{IndexSpace::kMaxVars};
  PackedOperand packed_;
  LaneMode mode_;
  TileStarts tile_starts_;
  std::vector<llvm::Value*> pointers_;
  absl::flat_hash_set<llvm::Value*> aligned_;  // bases at which any vector may begin
  std::vector<llvm::AllocaInst*> allocas_;
  std::deque<Guard> guards_;
  absl::flat_hash_map<Key, InMemory> in_memory_;
  absl::flat_hash_map<Dim, llvm::Value*> dims_;
  absl::flat_hash_map<const Instruction*, llvm::AllocaInst*> check_flags_;
  llvm::Value* never_ = nullptr;
  absl::flat_hash_map<const Instruction*, llvm::GlobalVariable*> tables_;
  absl::flat_hash_map<const Computation*, bool> general_;
  absl::flat_hash_map<const Instruction*, std::vector<Index>> summed_;  // loops of contractions
  Index inside_ = nullptr, border_ = nullptr;  // 0, known only where an If has been entered
  std::unique_ptr<Module> bodies_;        // multiply-add computations, one per type
  absl::flat_hash_map<PrimitiveType, const Computation*> body_of_;
  absl::Status status_;
};

}  // namespace tenon
