// kContraction: the sums of a tile of the result are registers: `unroll` rows (iterations of the tile loop) of `across` vectors. A vector
// of one operand is loaded once for all rows, an element of the other once for all vectors (kernel_contraction.cc). What the fusion does
// with the sums it does before they are stored.
//
// A unit is a block of vectors in some rows; blocks are the slowest to change, so that what is read of the vectors' operand stays in cache.
#include <algorithm>
#include <numeric>

#include "absl/algorithm/container.h"
#include "backends/codegen/emit/emit_types.h"
#include "backends/codegen/index/contraction_index.h"
#include "backends/codegen/kernel/kernel_parts.h"
#include "backends/codegen/plan/packing.h"

namespace tenon {
namespace {

using llvm::Value;

class ContractionKernel {
 public:
  ContractionKernel(KernelEmitter& e, const KernelPlan& plan) : e_(e), f_(e.fused()), plan_(plan), columns_(plan.loops.back().extent) {
    for (const PlanLoop& l : plan.loops) vars_.push_back(e.space().Var(l.extent));
    index_.assign(vars_.begin(), vars_.end());
    if (plan.tile_loop >= 0) rows_ = plan.loops[static_cast<size_t>(plan.tile_loop)].extent;
    // A column is a place in a block, if they are all whole: an operand that lies in such blocks needs no division.
    column_ = vars_.back();
    if (!WholeBlocks()) return;
    block_ = e.space().Var(FloorDiv(columns_, plan.block));
    column_ = e.space().Var(plan.block);
    index_.back() = e.space().Combine(block_, plan.block, column_, 1);
  }

  void Emit() {
    if (plan_.packed) {
      packing_ = PackingOf(f_, plan_);
      packed_part_ = e_.Alloca(b().getInt64Ty());
      b().CreateStore(e_.I64(-1), packed_part_);
    }
    e_.ForUnits([&](Value* unit) {
      Value* rest = unit;
      auto digit = [&](Dim extent) {
        Value* n = e_.EmitDim(extent);
        Value* d = b().CreateURem(rest, n);
        rest = b().CreateUDiv(rest, n);
        return d;
      };
      Value* from = e_.I64(0);
      Value* to = e_.EmitDim(rows_);
      if (plan_.rows > 0) {
        from = b().CreateMul(digit(CeilDiv(rows_, plan_.rows)), e_.I64(plan_.rows));
        to = b().CreateBinaryIntrinsic(llvm::Intrinsic::smin, to, b().CreateAdd(from, e_.I64(plan_.rows)));
      }
      part_ = rest;
      for (int i = plan_.split; i-- > 0;) e_.BindVar(vars_[static_cast<size_t>(i)], digit(plan_.loops[static_cast<size_t>(i)].extent));
      if (packing_ && !packing_->by_outer) part_ = rest;
      if (block_ != nullptr) e_.BindVar(block_, rest);
      Blocks(rest, from, to);
    });
  }

 private:
  llvm::IRBuilder<>& b() { return e_.Here(); }

  // Of the packed operand: element `to` of `base`, which is known in level `level`.
  struct Scratch {
    Value* base;
    int level;
    PrimitiveType type;
  };

  bool WholeBlocks() const { return columns_.is_constant() && columns_.constant() % plan_.block == 0; }

  // Whole blocks, and the last one, which has fewer vectors.
  void Blocks(Value* block, Value* from, Value* to) {
    const int across = static_cast<int>(plan_.block / plan_.lanes);
    Value* first = b().CreateMul(block, e_.I64(plan_.block));
    if (WholeBlocks()) {
      Turn(first, e_.I64(plan_.block));
      Copy(first, plan_.block);
      return Columns(e_.I64(0), across, nullptr, from, to);
    }
    Value* left = b().CreateSub(e_.EmitDim(columns_), first);
    Value* whole = b().CreateICmpSGE(left, e_.I64(plan_.block));
    Turn(first, b().CreateSelect(whole, e_.I64(plan_.block), left));
    if (columns_.constant_or(plan_.block) >= plan_.block) {
      e_.If(whole, [&] {
        Copy(first, plan_.block);
        Columns(first, across, nullptr, from, to);
      });
    }
    e_.If(b().CreateNot(whole), [&] {
      Copy(first, columns_.constant_or(0) % plan_.block);
      if (!columns_.is_constant()) {
        if (plan_.masked_tail) return Columns(first, across, left, from, to);
        return OneByOne(first, from, to);
      }
      const int64_t known = columns_.constant() % plan_.block;
      const int vectors = static_cast<int>(known / plan_.lanes);
      if (known % plan_.lanes == 0) return Columns(first, vectors, nullptr, from, to);
      if (plan_.masked_tail) return Columns(first, vectors + 1, left, from, to);
      if (vectors > 0) Columns(first, vectors, nullptr, from, to);
      OneByOne(b().CreateAdd(first, e_.I64(int64_t{vectors} * plan_.lanes)), from, to);
    });
  }

  // What columns from `first` on read of the second operand is brought to scratch by `bring`, unless it is what lies there.
  void Pack(Value* first, const std::function<void(const Scratch&)>& bring) {
    const PrimitiveType type = packing_->contraction->operand(1)->shape().element_type();
    // Addressed by the column itself: where column 0 would lie.
    Value* before = b().CreateMul(first, e_.I64(-StorageBytes(type)));
    const Scratch to{.base = b().CreateGEP(b().getInt8Ty(), e_.ScratchPointer(0), before), .level = e_.innermost(), .type = type};
    Value* other = b().CreateICmpNE(b().CreateLoad(b().getInt64Ty(), packed_part_), part_);
    e_.If(other, [&] {
      b().CreateStore(part_, packed_part_);
      bring(to);
    });
    const bool in_block = block_ != nullptr;
    e_.set_packed({packing_->contraction, in_block ? e_.ScratchPointer(0) : to.base, in_block ? 0 : to.level, column_, plan_.block});
  }

  // Where term `place_` of column `packed_column_` is read, and where it goes in scratch.
  struct Element {
    IndexTuple from;
    Index to;
  };

  Element ElementOfColumn() {
    if (place_ == nullptr) {
      place_ = e_.space().Var(packing_->terms);
      packed_column_ = e_.space().Var(columns_);
    }
    std::vector<Index> index = index_;
    index.back() = packed_column_;
    Iteration iteration(e_.space(), f_, plan_.loops, index);
    std::vector<Dim> in_memory, as_run(packing_->extents.begin(), packing_->extents.end());
    for (size_t k : packing_->order) in_memory.push_back(packing_->extents[k]);
    const IndexTuple split = e_.space().Delinearize(place_, in_memory);
    std::vector<Index> summed(split.size());
    for (size_t k = 0; k < split.size(); ++k) summed[packing_->order[k]] = split[k];
    const Instruction& op = *packing_->contraction;
    const Index place = e_.space().Linear(summed, DenseStrides(as_run));
    return {MapContraction(e_.space(), op, iteration.IndexOf(e_.space(), f_, op.shape()), summed).rhs,
            e_.space().Combine(place, plan_.block, packed_column_, 1)};
  }

  // Columns `lo` to `hi` of those from `first` on.
  void ColumnsFrom(Value* first, Value* lo, Value* hi, int64_t step, const std::function<void()>& body) {
    if (lo == hi) return;
    e_.LoopOver(packed_column_, b().CreateAdd(first, lo), b().CreateAdd(first, hi), step, body);
  }

  void OneByOne(const Element& element, const Scratch& to, int64_t lo, int64_t hi) {
    if (lo == hi) return;
    const Instruction& rhs = *packing_->contraction->operand(1);
    auto store = [&] { e_.StoreRaw(to.base, to.level, element.to, to.type, e_.Eval(&rhs, element.from)); };
    e_.LoopOver(place_, e_.I64(lo), e_.I64(hi), 1, store);
  }

  // Columns that lie side by side are copied: all vectors of a term, then what is left of the columns.
  void Copy(Value* first, int64_t columns) {
    if (!packing_ || packing_->apart == 0) return;
    const int64_t whole = columns / plan_.lanes * plan_.lanes;
    Pack(first, [&](const Scratch& to) {
      const Element element = ElementOfColumn();
      LaneMode mode{.lanes = plan_.lanes, .copies = static_cast<int>(whole / plan_.lanes)};
      mode.across = mode.copies;
      mode.vector_var = packed_column_->var;
      auto copy = [&] {
        mode.level = e_.innermost();
        e_.set_mode(mode);
        e_.StoreRaw(to.base, to.level, element.to, to.type, e_.Eval(packing_->contraction->operand(1), element.from));
        e_.set_mode({});
      };
      ColumnsFrom(first, e_.I64(0), e_.I64(whole), whole, [&] { e_.LoopOver(place_, e_.I64(0), e_.I64(packing_->terms), 1, copy); });
      ColumnsFrom(first, e_.I64(whole), e_.I64(columns), 1, [&] { OneByOne(element, to, 0, packing_->terms); });
    });
  }

  // Where the terms of the packed operand, as they lie in memory, go in scratch: after `round` of them the same places come again,
  // `step` bytes further. Divisions of each term's place would take longer than to turn it.
  struct TermPlaces {
    int64_t round = 0, step = 0;
    std::vector<int32_t> bytes;
  };

  TermPlaces PlacesOfTerms(int64_t term_bytes) const {
    const Packing& p = *packing_;
    std::vector<int64_t> stride(p.extents.size(), term_bytes);  // in scratch, where the last loop is the fastest
    for (size_t k = p.extents.size() - 1; k-- > 0;) stride[k] = stride[k + 1] * p.extents[k + 1];
    const int64_t inner = p.terms / p.extents[p.order[0]];
    TermPlaces places{.round = std::lcm(inner, int64_t{plan_.lanes})};
    places.step = places.round / inner * stride[p.order[0]];
    for (int64_t i = 0; i < std::min(places.round, p.terms); ++i) {
      int64_t rest = i, at = 0;
      for (size_t k = p.order.size(); k-- > 0; rest /= p.extents[p.order[k]]) at += rest % p.extents[p.order[k]] * stride[p.order[k]];
      places.bytes.push_back(static_cast<int32_t>(at));
    }
    return places;
  }

  // Columns whose terms lie side by side are turned: squares of vectors in registers; what is left at the ends goes one by one.
  void Turn(Value* first, Value* columns) {
    if (!packing_ || packing_->apart > 0) return;
    const int64_t lanes = plan_.lanes, terms = packing_->terms, whole_terms = terms / lanes * lanes;
    Pack(first, [&](const Scratch& to) {
      const Element element = ElementOfColumn();
      Value* none = e_.I64(0);
      Value* whole = columns_.constant() % lanes == 0 ? columns : b().CreateAnd(columns, e_.I64(-lanes));
      ColumnsFrom(first, none, whole, lanes, [&] {
        if (whole_terms == 0) return;
        if (!absl::c_is_sorted(packing_->order)) return SpreadTerms(element, to, whole_terms);
        const int64_t squares = LiesAsInScratch(to.type) ? whole_terms / lanes : 1;
        e_.LoopOver(place_, none, e_.I64(whole_terms), squares * lanes, [&] {
          const int64_t bytes = StorageBytes(to.type);
          Value* at = b().CreateMul(e_.ScalarIndex(element.to).v[0], e_.I64(bytes));
          Squares(squares, element, to.type, b().CreateGEP(b().getInt8Ty(), to.base, at), plan_.block * bytes);
        });
      });
      ColumnsFrom(first, none, whole, 1, [&] { OneByOne(element, to, whole_terms, terms); });
      ColumnsFrom(first, whole, columns, 1, [&] { OneByOne(element, to, 0, terms); });
    });
  }

  // Whether the packed operand is in memory as it will be in scratch: nothing is computed of it, or widened.
  bool LiesAsInScratch(PrimitiveType type) const {
    const bool is_parameter = packing_->contraction->operand(1)->opcode() == Opcode::kParameter;
    return is_parameter && StorageType(e_.context(), type) == MemoryType(e_.context(), type);
  }

  // Vectors of terms of as many columns, turned: a vector of columns of each term, `step` bytes apart from `to` on. Several squares, one
  // behind the other, only of an operand that LiesAsInScratch.
  void Squares(int64_t squares, const Element& element, PrimitiveType type, Value* to, int64_t step) {
    constexpr int64_t kAhead = 8;  // squares: the processor follows few of the columns by itself
    const Instruction& rhs = *packing_->contraction->operand(1);
    const int64_t bytes = StorageBytes(type);
    TurningSpec turning{.element = StorageType(e_.context(), type), .lanes = plan_.lanes};
    Value *from = nullptr, *from_step = nullptr;
    if (LiesAsInScratch(type)) {
      const auto operand = static_cast<size_t>(rhs.parameter_number());
      const Index offset = e_.space().Linear(element.from, f_.operands[operand].strides);
      from = b().CreateGEP(turning.element, e_.OperandPointer(static_cast<int>(operand)), e_.ScalarIndex(offset).v[0]);
      from_step = b().CreateMul(e_.EmitDim(AccessAlong(offset, packed_column_->var).stride), e_.I64(bytes));
      if (e_.specs().prefetches && Typical(rhs.shape().byte_size()) >= kCachedBytes) turning.ahead = kAhead;
    } else {
      LaneMode mode{.lanes = plan_.lanes, .copies = plan_.lanes};
      mode.vector_var = place_->var;
      mode.unroll_var = packed_column_->var;
      mode.level = e_.innermost();
      e_.set_mode(mode);
      e_.PrefetchAhead(place_, kAhead * plan_.lanes);
      const Val rows = e_.Eval(&rhs, element.from);
      e_.load_hook = nullptr;
      from = SquareInMemory(turning.element);
      from_step = e_.I64(plan_.lanes * bytes);
      for (int k = 0; k < plan_.lanes; ++k) {
        Value* row = b().CreateConstGEP1_64(b().getInt8Ty(), from, static_cast<uint64_t>(k * plan_.lanes * bytes));
        b().CreateStore(e_.Splat(rows.at(static_cast<size_t>(k)), rows.level), row);
      }
      e_.set_mode({});
    }
    llvm::Function& kernel = *b().GetInsertBlock()->getParent();
    b().CreateCall(TurningFunction(kernel, turning), {from, from_step, to, e_.I64(step), e_.I64(squares)});
  }

  Value* SquareInMemory(llvm::Type* element) {
    if (square_ == nullptr) {
      auto* row = llvm::FixedVectorType::get(element, static_cast<unsigned>(plan_.lanes));
      square_ = e_.Alloca(llvm::ArrayType::get(row, static_cast<uint64_t>(plan_.lanes)));
    }
    return square_;
  }

  // The first `terms` terms of a vector of columns, to places in scratch that a table has.
  void SpreadTerms(const Element& element, const Scratch& to, int64_t terms) {
    const TermPlaces places = PlacesOfTerms(plan_.block * StorageBytes(to.type));
    llvm::Constant* all = llvm::ConstantDataArray::get(e_.context(), places.bytes);
    auto* table = new llvm::GlobalVariable(*b().GetInsertBlock()->getModule(), all->getType(), /*isConstant=*/true,
                                           llvm::GlobalValue::PrivateLinkage, all);
    const int64_t row_bytes = plan_.lanes * StorageBytes(to.type);
    llvm::Type* storage = StorageType(e_.context(), to.type);
    auto* row_type = llvm::FixedVectorType::get(storage, static_cast<unsigned>(plan_.lanes));
    e_.Loop(e_.I64(0), e_.I64(terms), e_.I64(places.round), [&](Value* start) {
      Value* end = b().CreateAdd(start, e_.I64(places.round));
      if (terms % places.round != 0) end = b().CreateBinaryIntrinsic(llvm::Intrinsic::smin, end, e_.I64(terms));
      Value* round = b().CreateUDiv(start, e_.I64(places.round));
      Value* there = b().CreateGEP(b().getInt8Ty(), to.base, b().CreateMul(round, e_.I64(places.step)));
      e_.LoopOver(place_, start, end, plan_.lanes, [&] {
        Value* square = SquareInMemory(storage);
        Squares(1, element, to.type, square, row_bytes);
        Value* column = b().CreateGEP(storage, there, e_.ScalarIndex(packed_column_).v[0]);
        Value* entry = b().CreateGEP(b().getInt32Ty(), table, b().CreateSub(e_.ScalarIndex(place_).v[0], start));
        e_.Loop(e_.I64(0), e_.I64(plan_.lanes), e_.I64(1), [&](Value* k) {
          Value* bytes = b().CreateLoad(b().getInt32Ty(), b().CreateGEP(b().getInt32Ty(), entry, k));
          Value* row = b().CreateLoad(row_type, b().CreateGEP(row_type, square, k));
          Value* place = b().CreateGEP(b().getInt8Ty(), column, b().CreateSExt(bytes, b().getInt64Ty()));
          b().CreateAlignedStore(row, place, llvm::Align(static_cast<uint64_t>(StorageBytes(to.type))));
        });
      });
    });
  }

  // `across` vectors from `first` on; `left`: so many elements are there, if not all.
  void Columns(Value* first, int across, Value* left, Value* from, Value* to) {
    LaneMode mode;
    mode.lanes = plan_.lanes;
    mode.vector_var = plan_.lanes > 1 ? column_->var : -1;
    mode.across = plan_.lanes > 1 ? across : 1;
    mode.remaining = left;
    Rows(mode, first, from, to);
  }

  // Without masks: what is left from `first` on element by element.
  void OneByOne(Value* first, Value* from, Value* to) {
    e_.LoopOver(column_, first, e_.EmitDim(columns_), 1, [&] { Rows({}, nullptr, from, to); });
  }

  // `unroll` rows at a time, then those that are left: at once if their number is known; else so many at once as are left of the typical
  // number, and by halves: a tile of few rows takes hardly less time than one of some. `column`: the first one, unless it is bound.
  void Rows(const LaneMode& mode, Value* column, Value* from, Value* to) {
    if (plan_.tile_loop < 0) return Tile(mode, column, 1, [&] { Body(); });
    const bool known = rows_.is_constant();
    const int64_t step = plan_.unroll, rows = std::max<int64_t>(Typical(rows_), 0), left = rows % step;
    Value* done = from;
    auto tiles = [&](int64_t at_once, int64_t first, int64_t last, bool all) {
      const Index row = vars_[static_cast<size_t>(plan_.tile_loop)];
      Value* end = to;
      if (!all) end = b().CreateAdd(done, b().CreateMul(b().CreateUDiv(b().CreateSub(to, done), e_.I64(at_once)), e_.I64(at_once)));
      if (first >= 0) e_.set_tile_starts({row->var, first, last, at_once, known ? -1 : rows});
      Tile(mode, column, at_once, [&] { e_.LoopOver(row, done, end, at_once, [&] { Body(); }); });
      done = end;
    };
    if (!known || rows >= step) tiles(step, 0, rows - left - step, false);
    if (known && left > 0) tiles(left, rows - left, rows - left, true);
    if (known) return;
    bool typical = left > 1;
    for (int64_t half = step; half > 1;) {
      half = (half + 1) / 2;
      if (typical && left >= half) {
        typical = false;
        tiles(left, rows - left, rows - left, false);
        if (left == half) continue;
      }
      tiles(half, -1, -1, half == 1);
    }
  }

  // A level of its own: what is remembered there has this number of copies.
  void Tile(LaneMode mode, Value* column, int64_t rows, const std::function<void()>& body) {
    mode.copies = static_cast<int>(rows) * mode.across;
    if (plan_.tile_loop >= 0) mode.unroll_var = vars_[static_cast<size_t>(plan_.tile_loop)]->var;
    e_.InLevel([&] {
      mode.level = e_.innermost();
      e_.set_mode(mode);
      if (column != nullptr) e_.BindVar(column_, column);
      if (mode.remaining != nullptr) e_.MakeMasks();
      body();
    });
    e_.set_mode({});
    e_.set_tile_starts({});
  }

  void Body() {
    Iteration iteration(e_.space(), f_, plan_.loops, index_);
    EmitChecks(e_, iteration, Role::kFull);
    StoreRoots(e_, iteration, RootsWithRole(f_, Role::kFull));
  }

  KernelEmitter& e_;
  const FusedKernel& f_;
  const KernelPlan& plan_;
  const Dim columns_;
  Dim rows_ = 1;
  std::vector<Index> vars_, index_;
  Index block_ = nullptr, column_ = nullptr;
  std::optional<Packing> packing_;
  llvm::AllocaInst* packed_part_ = nullptr;  // which part of the operand lies in scratch
  Value* part_ = nullptr;                    // which one the unit reads
  Index place_ = nullptr, packed_column_ = nullptr;
  llvm::AllocaInst* square_ = nullptr;
};

}  // namespace

void EmitContractionKernel(KernelEmitter& e, const KernelPlan& plan) {
  ContractionKernel(e, plan).Emit();
  EmitOthers(e);
}

}  // namespace tenon
