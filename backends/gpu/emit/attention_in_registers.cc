// kAttention by tensor cores, with stages: what backends/gpu/emit/attention_kernel.cc computes, but scores, weights and sums of results
// stay in registers (T. Dao: "FlashAttention-2", 2023). A warp has 16 rows; a lane's sums of a product are elements of two of them, and as
// they lie they are, in pairs of halves, the first operand of the next product. So a row's largest score and its sum are of four lanes, and
// nothing but keys and values goes through shared memory: each stage is a tile of both, and all but the one that is multiplied are on their
// way as asynchronous copies. One barrier a tile says that it is there, and that the one before may be overwritten.
//
// The last tile, if it is no whole one, has code of its own: its keys behind the last are taken for the last, then for -inf.
//
// Where no exponential is more than 1 it is 2^(log2(e) * d), by the GPU's own instruction: off by about 2^-22 of 1 (2 ulp of ex2.approx,
// and |d| e^d 2^-24 for the rounded product), 0 below 2^-126; two halves tell a bf16 weight to 2^-17, an f16 one to 2^-22. d = 0 gives 1.
#include <array>
#include <cmath>
#include <numbers>
#include <tuple>
#include <utility>

#include "backends/codegen/math/math.h"
#include "backends/gpu/emit/attention_parts.h"
#include "backends/gpu/emit/kernels.h"
#include "backends/gpu/emit/threads.h"
#include "llvm/IR/Intrinsics.h"
#include "llvm/IR/IntrinsicsNVPTX.h"

namespace tenon::gpu {

using llvm::Value;

namespace {

constexpr size_t kRows = 2;       // of a lane: l / 4, and kMatrix further
constexpr int kQuad = 4;          // lanes that share them
constexpr int64_t kVector = 8;    // halves of a copy
constexpr int64_t kAtOnce = 4 * kMmaColumns;  // columns of results, before the weights' second halves

using Slots = std::vector<llvm::AllocaInst*>;

class AttentionInRegisters : AttentionParts {
 public:
  AttentionInRegisters(KernelEmitter& e, const GpuPlan& plan, Value* thread) : AttentionParts(e, plan, thread) {}

  void Emit() {
    ForTiles([&] {
      Value* last_row = b().CreateSub(rows_left_, e_.I64(1));
      for (size_t r = 0; r < kRows; ++r) {
        rows_[r] = b().CreateBinaryIntrinsic(llvm::Intrinsic::smin, LanesRow(2 * r), last_row);
        maximum_[r] = NewSlot(b().getFloatTy(), Constant(-INFINITY));
        shift_[r] = NewSlot(b().getFloatTy(), Constant(0));
      }
      sum_ = {NewSlot(b().getFloatTy(), Constant(0)), NewSlot(b().getFloatTy(), Constant(0))};
      results_ = NewSums(tile_.columns / 2);
      end_ = e_.EmitDim(CeilDiv(keys_, tile_.keys));
      for (int64_t k = 0; k + 1 < gpu_.stages; ++k) Begin(e_.I64(k));
      e_.InLevel([&] { Fill(at_.queries, rows_left_); });
      Barrier(b());
      LoadQueries();
      const bool whole = keys_.is_constant() && keys_.constant() % tile_.keys == 0;
      Value* wholes = whole ? end_ : b().CreateUDiv(e_.EmitDim(keys_), e_.I64(tile_.keys));
      e_.Loop(e_.I64(0), wholes, e_.I64(1), [&](Value* tile) { Tile(tile, /*whole=*/true); });
      if (!whole) e_.If(b().CreateICmpSLT(wholes, end_), [&] { Tile(wholes, /*whole=*/false); });
      e_.InLevel([&] { Divisors(); });
      Barrier(b());
      StoreFragment(results_, tile_.queries, tile_.result_row);
      Barrier(b());
      Results();
    });
  }

 private:
  // ---- keys and values ----

  Value* StageOf(Value* tile) { return b().CreateMul(b().CreateURem(tile, e_.I64(gpu_.stages)), e_.I64(tile_.stage_bytes)); }

  // The copies of a tile of both, a group of their own; behind the last one a group of none.
  void Begin(Value* tile) {
    e_.If(b().CreateICmpSLT(tile, end_), [&] {
      e_.BindVar(at_.key_block, tile);
      Value *stage = StageOf(tile), *left = KeysLeft(tile);
      for (const AttentionOperand* o : {&at_.keys, &at_.values}) {
        if (keys_.is_constant() && keys_.constant() % tile_.keys == 0) {
          Copy(*o, stage, nullptr);
          continue;
        }
        Value* whole = b().CreateICmpSGE(left, e_.I64(tile_.keys));
        e_.If(whole, [&] { Copy(*o, stage, nullptr); });
        e_.If(b().CreateNot(whole), [&] { Copy(*o, stage, left); });
      }
    });
    CommitCopies(b());
  }
  Value* KeysLeft(Value* tile) { return b().CreateSub(e_.EmitDim(keys_), b().CreateMul(tile, e_.I64(tile_.keys))); }

  // `left`: null: all places are inside.
  void Copy(const AttentionOperand& o, Value* stage, Value* left) {
    const int64_t line = o.terms / kVector, count = o.places * line;
    for (int64_t from = 0; from < count; from += gpu_.threads) {
      Value* at = b().CreateAdd(thread_, e_.I64(from));
      Value *place = b().CreateUDiv(at, e_.I64(line)), *term = b().CreateMul(b().CreateURem(at, e_.I64(line)), e_.I64(kVector));
      Value *there = b().getTrue(), *inside = b().getTrue();
      if (from + gpu_.threads > count) there = b().CreateICmpSLT(at, e_.I64(count));
      if (o.real_terms < o.terms) inside = b().CreateICmpSLT(term, e_.I64(o.real_terms));
      if (left != nullptr) inside = b().CreateAnd(inside, b().CreateICmpSLT(place, left));
      const auto to = [&] {
        Value* first = b().CreateGEP(b().getInt8Ty(), e_.ScratchPointer(o.bytes_before), stage);
        return b().CreateGEP(ElementType(), first, b().CreateAdd(b().CreateMul(place, e_.I64(o.row)), term));
      };
      e_.If(b().CreateAnd(there, inside), [&] {
        e_.BindVar(o.place, place);
        e_.BindVar(o.term, term);
        e_.set_mode(VectorsAlong(o.term, kVector));
        Value* base = e_.OperandPointer(static_cast<int>(o.source->parameter->parameter_number()));
        if (Value* vector = e_.VectorPointer(base, ElementType(), o.source->offset); vector != nullptr) {
          CopyAsync(b(), to(), vector);
        } else {
          b().CreateAlignedStore(Read(o).v[0], to(), llvm::Align(16));
        }
        e_.set_mode({});
      });
      if (o.real_terms == o.terms && left == nullptr) continue;
      e_.If(b().CreateAnd(there, b().CreateNot(inside)), [&] {
        llvm::Type* vector = WithLanes(ElementType(), kVector);
        b().CreateAlignedStore(llvm::Constant::getNullValue(vector), to(), llvm::Align(16));
      });
    }
  }

  SharedHalves Staged(const AttentionOperand& o, bool term_rows) {
    return {o.bytes_before, o.row, term_rows, b().CreateUDiv(b().CreateTrunc(stage_, b().getInt32Ty()), fragments_.I32(2))};
  }

  // ---- a tile ----

  void Tile(Value* tile, bool whole) {
    WaitForCopies(b(), gpu_.stages - 2);
    Barrier(b());
    Begin(b().CreateAdd(tile, e_.I64(gpu_.stages - 1)));
    e_.BindVar(at_.key_block, tile);
    stage_ = StageOf(tile);
    keys_left_ = whole ? nullptr : KeysLeft(tile);
    const Slots scores = NewSums(tile_.keys / 2);
    AddScores(scores);
    const std::array<Value*, kRows> before = {Load(maximum_[0]), Load(maximum_[1])};
    MakeScores(scores);
    std::array<Value*, kRows> shifting = {}, factors = {};
    for (size_t r = 0; r < kRows; ++r) std::tie(shifting[r], factors[r]) = Shift(r, before[r]);
    RescaleSums(factors);
    MakeWeights(scores, shifting);
    AddResults(scores);
  }

  void LoadQueries() {
    const SharedHalves queries{tile_.queries, tile_.query_row, false};
    Value* lanes = fragments_.LaneOffset(queries, WarpsRow(), true);
    for (int64_t term = 0; term < tile_.terms; term += kMmaTerms) query_.push_back(fragments_.Load(queries, lanes, 0, term));
  }

  void AddScores(const Slots& scores) {
    const SharedHalves keys = Staged(at_.keys, false);
    Value* lanes = fragments_.LaneOffset(keys, fragments_.I32(0), false);
    for (int64_t term = 0; term < tile_.terms; term += kMmaTerms) {
      for (int64_t key = 0; key < tile_.keys; key += 2 * kMmaColumns) {
        const std::vector<Value*> both = fragments_.Load(keys, lanes, key, term);
        for (int64_t half = 0; half < 2; ++half) {
          llvm::AllocaInst* const* own = &scores[static_cast<size_t>((key / kMmaColumns + half) * 4)];
          fragments_.MultiplyAdd(half_, query_[static_cast<size_t>(term / kMmaTerms)], &both[static_cast<size_t>(2 * half)], own);
        }
      }
    }
  }

  void AddResults(const Slots& weights) {
    const SharedHalves values = Staged(at_.values, true);
    Value* lanes = fragments_.LaneOffset(values, fragments_.I32(0), false);
    for (int64_t key = 0; key < tile_.keys; key += kMmaTerms) {
      const std::array<std::vector<Value*>, 2> parts = Halves(weights, static_cast<size_t>(key / kMmaTerms) * 8);
      for (int64_t from = 0; from < tile_.columns; from += kAtOnce) {
        std::vector<Value*> y;
        for (int64_t column = from; column < std::min(from + kAtOnce, tile_.columns); column += 2 * kMmaColumns) {
          for (Value* v : fragments_.Load(values, lanes, column, key)) y.push_back(v);
        }
        for (const std::vector<Value*>& part : parts) {
          for (size_t i = 0; 2 * i < y.size(); ++i) {
            fragments_.MultiplyAdd(half_, part, &y[2 * i], &results_[(static_cast<size_t>(from / kMmaColumns) + i) * 4]);
          }
        }
      }
    }
  }

  // Eight weights from `first` on as the first operand of a product: pairs, rounded, and of what is left.
  std::array<std::vector<Value*>, 2> Halves(const Slots& weights, size_t first) {
    std::array<std::vector<Value*>, 2> parts;
    for (size_t i = first; i < first + 8; i += 2) {
      Value* rest = Get(weights, i, 2);
      for (std::vector<Value*>& part : parts) {
        Value* halves = ToMemory(b(), half_, rest, e_.specs().types);
        part.push_back(b().CreateBitCast(halves, b().getInt32Ty()));
        rest = b().CreateFSub(rest, FromMemory(b(), half_, halves, e_.specs().types));
      }
    }
    return parts;
  }

  // ---- what HLO makes of scores: two side by side, at once where the tile is whole ----

  Value* Get(const Slots& slots, size_t first, unsigned lanes) {
    if (lanes == 1) return Load(slots[first]);
    Value* pair = llvm::PoisonValue::get(llvm::FixedVectorType::get(b().getFloatTy(), 2));
    for (unsigned k = 0; k < 2; ++k) pair = b().CreateInsertElement(pair, Load(slots[first + k]), k);
    return pair;
  }
  // Each of `v`, to its slot and its row's.
  void Set(const Slots& slots, size_t first, unsigned lanes, Value* v, const std::function<void(size_t row, Value* v)>& of_row) {
    for (unsigned k = 0; k < lanes; ++k) {
      Value* own = lanes == 1 ? v : b().CreateExtractElement(v, k);
      b().CreateStore(own, slots[first + k]);
      of_row(RowOf(first), own);
    }
  }
  static size_t RowOf(size_t i) { return i % 4 / 2; }
  Value* Larger(Value* x, Value* y) { return b().CreateMaximum(x, y); }  // one instruction where there is mma; a NaN is

  // body(first, lanes, inside) at each score; `inside`: null where all are.
  void ForScores(const std::function<void(size_t first, unsigned lanes, Value* inside)>& body) {
    const unsigned lanes = keys_left_ == nullptr ? 2 : 1;
    for (size_t i = 0; i < static_cast<size_t>(tile_.keys / 2); i += lanes) {
      e_.InLevel([&] {
        Value *key = b().CreateAdd(LanesColumn(i), e_.I64(static_cast<int64_t>(i % 2))), *inside = nullptr;
        if (keys_left_ != nullptr) {
          inside = b().CreateAnd(b().CreateICmpSLT(LanesRow(i), rows_left_), b().CreateICmpSLT(key, keys_left_), "key.inside");
          key = b().CreateBinaryIntrinsic(llvm::Intrinsic::smin, key, b().CreateSub(keys_left_, e_.I64(1)));
        }
        e_.BindVar(at_.row, rows_[RowOf(i)]);
        e_.BindVar(at_.key, key);
        e_.set_mode(VectorsAlong(at_.key, lanes));
        body(i, lanes, inside);
        e_.set_mode({});
      });
    }
  }
  Value* Widened(const Val& v) { return e_.mode().lanes > 1 ? e_.Splat(v.v[0], v.level) : v.v[0]; }

  void MakeScores(const Slots& scores) {
    ForScores([&](size_t first, unsigned lanes, Value* inside) {
      e_.Define(a_.scores, scores_index_, 0, {.v = {Get(scores, first, lanes)}, .level = e_.innermost()});
      Value* x = Widened(e_.Eval(a_.x, full_));
      if (inside != nullptr) x = b().CreateSelect(inside, x, Constant(-INFINITY));
      Set(scores, first, lanes, x, [&](size_t r, Value* own) { b().CreateStore(Larger(Load(maximum_[r]), own), maximum_[r]); });
    });
    for (llvm::AllocaInst* m : maximum_) b().CreateStore(OfQuad(Load(m), [&](Value* x, Value* y) { return Larger(x, y); }), m);
  }

  // What takes the maximum's place in exponentials of row `r`, and by what that rescales its sums.
  std::pair<Value*, Value*> Shift(size_t r, Value* before) {
    Value* maximum = Load(maximum_[r]);
    Value* shifting = b().CreateSelect(IsMinusInfinity(maximum), Constant(0), maximum);
    Value* old_shift = Load(shift_[r]);
    e_.InLevel([&] {
      e_.BindVar(at_.row, rows_[r]);
      DefineRow(a_.maximum, shifting);
      b().CreateStore(RowValue(a_.shift), shift_[r]);
    });
    Value* distance = b().CreateFSub(old_shift, Load(shift_[r]));
    Value* moved = a_.by_maximum ? Exponential(distance, 0) : math::Emit(b(), math::Fn::kExp, {{distance}});
    return {shifting, b().CreateSelect(IsMinusInfinity(before), Constant(1), moved)};
  }
  // By 1 mostly, for all of a warp.
  void RescaleSums(const std::array<Value*, kRows>& factors) {
    Value* moves = b().CreateOr(b().CreateFCmpUNE(factors[0], Constant(1)), b().CreateFCmpUNE(factors[1], Constant(1)));
    e_.If(AnyInWarp(b(), moves), [&] {
      for (size_t r = 0; r < kRows; ++r) Rescale(sum_[r], factors[r]);
      for (size_t i = 0; i < results_.size(); ++i) Rescale(results_[i], factors[RowOf(i)]);
    });
  }

  // 2^(scale + log2(e) * x).
  Value* Exponential(Value* x, double scale) {
    Value* log2e = Constant(std::numbers::log2e);
    Value* y = scale == 0 ? b().CreateFMul(x, log2e)
                          : b().CreateIntrinsic(llvm::Intrinsic::fma, {x->getType()}, {x, log2e, Constant(scale)});
    return b().CreateIntrinsic(llvm::Intrinsic::nvvm_ex2_approx_ftz, {y->getType()}, {y});
  }

  void MakeWeights(const Slots& scores, const std::array<Value*, kRows>& shifting) {
    const double scale = scaled() ? std::log2(kWeightScale) : 0;
    ForScores([&](size_t first, unsigned lanes, Value* inside) {
      e_.Define(a_.x, full_, 0, {.v = {Get(scores, first, lanes)}, .level = e_.innermost()});
      DefineRow(a_.maximum, shifting[RowOf(first)]);
      Value* weight = Widened(e_.Eval(a_.by_maximum ? a_.exp->operand(0) : a_.exp, full_));
      if (a_.by_maximum) {
        Value* distance = weight;
        if (lanes == 1) {
          weight = Exponential(distance, scale);
        } else {
          for (unsigned k = 0; k < lanes; ++k) {
            weight = b().CreateInsertElement(weight, Exponential(b().CreateExtractElement(distance, k), scale), k);
          }
        }
      }
      if (inside != nullptr) weight = b().CreateSelect(inside, weight, Constant(0));
      Set(scores, first, lanes, weight, [&](size_t r, Value* own) { b().CreateStore(b().CreateFAdd(Load(sum_[r]), own), sum_[r]); });
    });
  }

  // Of the lanes that have the row.
  Value* OfQuad(Value* v, const std::function<Value*(Value*, Value*)>& merge) {
    using Values = std::vector<Value*>;
    const auto first = [&](const Values& x, const Values& y) { return Values{merge(x[0], y[0])}; };
    return MergeLanes(e_, {v}, kQuad, first, /*by_warps=*/true)[0];
  }

  void Divisors() {
    for (size_t r = 0; r < kRows; ++r) {
      Value* sum = OfQuad(Load(sum_[r]), [&](Value* x, Value* y) { return b().CreateFAdd(x, y); });
      if (scaled()) sum = b().CreateFMul(sum, Constant(1 / kWeightScale));
      Value* first = b().CreateICmpEQ(b().CreateAnd(fragments_.Lane(), fragments_.I32(kQuad - 1)), fragments_.I32(0));
      e_.If(first, [&] {
        e_.BindVar(at_.row, rows_[r]);
        StoreFactor(LanesRow(2 * r), Divisor(Load(maximum_[r]), sum));
      });
    }
  }

  std::array<Value*, kRows> rows_ = {};  // of this lane, or the last one
  std::array<llvm::AllocaInst*, kRows> maximum_ = {}, shift_ = {}, sum_ = {};  // so far; the sum: of this lane's keys
  Slots results_;
  std::vector<std::vector<Value*>> query_;  // by sixteens of terms
  Value* end_ = nullptr;                    // tiles
  Value* stage_ = nullptr;                  // bytes before the tile's
  Value* keys_left_ = nullptr;              // of a tile that is not whole
};

}  // namespace

void EmitAttentionInRegisters(KernelEmitter& e, const GpuPlan& plan, Value* thread) { AttentionInRegisters(e, plan, thread).Emit(); }

}  // namespace tenon::gpu
