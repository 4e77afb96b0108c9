// kAttention: a block has some query rows of one batch element, and goes through the keys by tiles: their scores are summed, what HLO makes
// of them is computed element by element, the weights are summed with the values. Scores and weights lie in shared memory, the sums of
// results in registers.
//
// The softmax is done on the way (M. Milakov, N. Gimelshein: "Online normalizer calculation for softmax", 2018; T. Dao et al.:
// "FlashAttention", 2022): a row's exponentials are of the distance to the largest score so far, and when that moves, what has been summed
// is rescaled by exp(old - new). In the end results are divided. So a weight is exp(x - max) where HLO has exp(x - max) / sum, and the
// division is done once.
//
// As long as a row has nothing but -inf its exponentials are taken as 0 (of HLO's: exp(-inf - -inf), NaN); a row that ends so has HLO's
// sum, which is NaN unless it is shifted by something else. A score of NaN or +inf makes a row NaN as it does in HLO.
//
// Products are summed in f32, in the order of their terms, by FMAs; of halves by tensor cores, to which a weight is two halves, its value
// rounded and what is left (of f16 times 2^15). Keys behind the last have weight 0, and so have rows behind the last, which are not stored.
// Tensor cores have another way, too, where sizes allow it: backends/gpu/emit/attention_in_registers.cc.
#include <cmath>
#include <utility>

#include "backends/codegen/math/math.h"
#include "backends/gpu/emit/attention_parts.h"
#include "backends/gpu/emit/kernels.h"
#include "backends/gpu/emit/threads.h"
#include "llvm/IR/Intrinsics.h"

namespace tenon::gpu {

using llvm::Value;

namespace {

class AttentionEmitter : AttentionParts {
 public:
  AttentionEmitter(KernelEmitter& e, const GpuPlan& plan, Value* thread) : AttentionParts(e, plan, thread) {
    score_offset_ = e_.space().Combine(at_.row, tile_.score_row, at_.key, 1);
  }

  void Emit() {
    ForTiles([&] {
      own_row_ = b().CreateUDiv(thread_, e_.I64(tile_.share));
      rank_ = b().CreateURem(thread_, e_.I64(tile_.share));
      own_row_inside_ = b().CreateICmpSLT(own_row_, rows_left_);
      MakeState();
      e_.InLevel([&] { Fill(at_.queries, rows_left_); });
      e_.Loop(e_.I64(0), e_.EmitDim(CeilDiv(keys_, tile_.keys)), e_.I64(1), [&](Value* tile) {
        e_.BindVar(at_.key_block, tile);
        keys_left_ = b().CreateSub(e_.EmitDim(keys_), b().CreateMul(tile, e_.I64(tile_.keys)));
        e_.InLevel([&] { Fill(at_.keys, keys_left_); });
        Barrier(b());
        e_.InLevel([&] { gpu_.mma ? ScoresByFragments() : ScoresByThreads(); });
        Barrier(b());
        e_.InLevel([&] { Fill(at_.values, keys_left_); });
        e_.InLevel([&] { Softmax(); });
        Barrier(b());
        e_.InLevel([&] { gpu_.mma ? AddFragments() : AddByThreads(); });
        Barrier(b());
      });
      e_.InLevel([&] { Divisors(); });
      e_.InLevel([&] { gpu_.mma ? StoreFragments() : StoreByThreads(); });
      Barrier(b());
      Results();
    });
  }

 private:
  llvm::Type* Four() { return llvm::FixedVectorType::get(b().getFloatTy(), kScoreSide); }
  Value* LoadFour(int64_t bytes_before, Value* row, int64_t row_elements, Value* column) {
    return b().CreateAlignedLoad(Four(), Place(bytes_before, row, row_elements, column, b().getFloatTy()), llvm::Align(16));
  }
  void StoreOwnFactor(Value* factor) {
    e_.If(b().CreateICmpEQ(rank_, e_.I64(0)), [&] { StoreFactor(own_row_, factor); });
  }
  Value* MultiplyAdd(Value* x, Value* y, Value* sum) {
    return b().CreateIntrinsic(llvm::Intrinsic::fma, {sum->getType()}, {x, y, sum});
  }

  void MakeState() {
    maximum_ = NewSlot(b().getFloatTy(), Constant(-INFINITY));
    shift_ = NewSlot(b().getFloatTy(), Constant(0));
    sum_ = NewSlot(b().getFloatTy(), Constant(0));
    const int64_t sums = gpu_.mma ? tile_.columns / 2 : kScoreSide * (tile_.columns / (kScoreSide * tile_.side));
    llvm::Type* type = gpu_.mma ? b().getFloatTy() : Four();
    for (int64_t i = 0; i < sums; ++i) sums_.push_back(NewSlot(type, llvm::Constant::getNullValue(type)));
  }

  // ---- by threads: each has 4 rows by 4 keys, and of those rows some groups of 4 columns ----

  Value* ThreadsRow(int64_t i) {
    return b().CreateAdd(b().CreateUDiv(thread_, e_.I64(tile_.side)), e_.I64(i * (tile_.rows / kScoreSide)));
  }
  Value* ThreadsKey(int64_t i) { return b().CreateAdd(b().CreateURem(thread_, e_.I64(tile_.side)), e_.I64(i * tile_.side)); }
  Value* ThreadsColumn(int64_t group) { return b().CreateMul(ThreadsKey(group), e_.I64(kScoreSide)); }
  int64_t groups() const { return static_cast<int64_t>(sums_.size()) / kScoreSide; }

  void ScoresByThreads() {
    std::vector<llvm::AllocaInst*> scores;
    for (int64_t i = 0; i < kScoreSide * kScoreSide; ++i) scores.push_back(NewSlot(b().getFloatTy(), Constant(0)));
    e_.Loop(e_.I64(0), e_.I64(tile_.terms), e_.I64(kScoreSide), [&](Value* term) {
      std::vector<Value*> x, y;
      for (int64_t i = 0; i < kScoreSide; ++i) {
        x.push_back(LoadFour(tile_.queries, ThreadsRow(i), tile_.query_row, term));
        y.push_back(LoadFour(tile_.others, ThreadsKey(i), tile_.key_row, term));
      }
      for (size_t i = 0; i < scores.size(); ++i) {
        for (uint64_t t = 0; t < kScoreSide; ++t) {
          Value *own = b().CreateExtractElement(x[i / kScoreSide], t), *other = b().CreateExtractElement(y[i % kScoreSide], t);
          b().CreateStore(MultiplyAdd(own, other, Load(scores[i])), scores[i]);
        }
      }
    });
    for (int64_t i = 0; i < kScoreSide * kScoreSide; ++i) {
      Value *row = ThreadsRow(i / kScoreSide), *key = ThreadsKey(i % kScoreSide);
      b().CreateStore(Load(scores[static_cast<size_t>(i)]), Place(tile_.scores, row, tile_.score_row, key, b().getFloatTy()));
    }
  }

  void AddByThreads() {
    for (int64_t i = 0; i < kScoreSide; ++i) {
      Value* factor = b().CreateVectorSplat(kScoreSide, LoadFactor(ThreadsRow(i)));
      for (int64_t g = 0; g < groups(); ++g) Rescale(sums_[static_cast<size_t>(i * groups() + g)], factor);
    }
    e_.Loop(e_.I64(0), e_.I64(tile_.keys), e_.I64(1), [&](Value* key) {
      std::vector<Value*> weights;
      for (int64_t i = 0; i < kScoreSide; ++i) {
        weights.push_back(b().CreateVectorSplat(kScoreSide, LoadFloat(tile_.scores, ThreadsRow(i), tile_.score_row, key)));
      }
      for (int64_t g = 0; g < groups(); ++g) {
        Value* values = LoadFour(tile_.others, key, tile_.value_row, ThreadsColumn(g));
        for (int64_t i = 0; i < kScoreSide; ++i) {
          llvm::AllocaInst* sum = sums_[static_cast<size_t>(i * groups() + g)];
          b().CreateStore(MultiplyAdd(weights[static_cast<size_t>(i)], values, Load(sum)), sum);
        }
      }
    });
  }

  void StoreByThreads() {
    for (size_t i = 0; i < sums_.size(); ++i) {
      Value *row = ThreadsRow(static_cast<int64_t>(i) / groups()), *column = ThreadsColumn(static_cast<int64_t>(i) % groups());
      b().CreateAlignedStore(Load(sums_[i]), Place(tile_.queries, row, tile_.result_row, column, b().getFloatTy()), llvm::Align(16));
    }
  }

  // ---- by tensor cores: each warp has 16 rows, all keys and all columns ----

  SharedHalves Weights(int64_t part) const { return {tile_.weights + part * tile_.rows * tile_.weight_row * 2, tile_.weight_row, false}; }
  // sums += x * y, of so many terms and columns.
  void Multiply(absl::Span<const SharedHalves> x, const SharedHalves& y, int64_t terms, int64_t columns,
                const std::vector<llvm::AllocaInst*>& sums) {
    std::vector<Value*> of_x;
    for (const SharedHalves& part : x) of_x.push_back(fragments_.LaneOffset(part, WarpsRow(), true));
    Value* of_y = fragments_.LaneOffset(y, fragments_.I32(0), false);
    for (int64_t term = 0; term < terms; term += kMmaTerms) {
      std::vector<std::vector<Value*>> parts;
      for (size_t i = 0; i < x.size(); ++i) parts.push_back(fragments_.Load(x[i], of_x[i], 0, term));
      for (int64_t column = 0; column < columns; column += 2 * kMmaColumns) {
        const std::vector<Value*> both = fragments_.Load(y, of_y, column, term);
        for (int64_t half = 0; half < 2; ++half) {
          llvm::AllocaInst* const* own = &sums[static_cast<size_t>((column / kMmaColumns + half) * 4)];
          for (const std::vector<Value*>& part : parts) fragments_.MultiplyAdd(half_, part, &both[static_cast<size_t>(2 * half)], own);
        }
      }
    }
  }
  void ScoresByFragments() {
    std::vector<llvm::AllocaInst*> scores;
    for (int64_t i = 0; i < tile_.keys / 2; ++i) scores.push_back(NewSlot(b().getFloatTy(), Constant(0)));
    Multiply({{tile_.queries, tile_.query_row, false}}, {tile_.others, tile_.key_row, false}, tile_.terms, tile_.keys, scores);
    StoreFragment(scores, tile_.scores, tile_.score_row);
  }

  void AddFragments() {
    Value *upper = LoadFactor(LanesRow(0)), *lower = LoadFactor(LanesRow(2));
    for (size_t i = 0; i < sums_.size(); ++i) Rescale(sums_[i], i % 4 < 2 ? upper : lower);
    Multiply({Weights(0), Weights(1)}, {tile_.others, tile_.value_row, true}, tile_.keys, tile_.columns, sums_);
  }

  void StoreFragments() { StoreFragment(sums_, tile_.queries, tile_.result_row); }

  // ---- the softmax: `share` threads side by side have a row, and take its keys in turn ----

  Value* Maximum(Value* x, Value* y) { return e_.Apply(b(), *a_.maximum->to_apply(), {{x, y}}, /*merging=*/true)[0]; }
  Value* Merged(Value* v, const std::function<Value*(Value*, Value*)>& merge) {
    using Values = std::vector<Value*>;
    const auto first = [&](const Values& x, const Values& y) { return Values{merge(x[0], y[0])}; };
    return MergeLanes(e_, {v}, static_cast<int>(tile_.share), first)[0];
  }
  // body at each of the thread's keys that are inside, in a level that knows where; then after(), at each.
  void ForKeys(const std::function<void()>& before, const std::function<void()>& body, const std::function<void(Value* key)>& after) {
    e_.Loop(rank_, e_.I64(tile_.keys), e_.I64(tile_.share), [&](Value* key) {
      before();
      Value* inside = b().CreateAnd(own_row_inside_, b().CreateICmpSLT(key, keys_left_), "key.inside");
      e_.If(inside, [&] {
        e_.BindVar(at_.row, own_row_);
        e_.BindVar(at_.key, key);
        body();
      });
      after(key);
    });
  }
  KernelEmitter::InMemory InScores() { return {e_.ScratchPointer(tile_.scores), 0, score_offset_, PrimitiveType::kF32}; }
  void Softmax() {
    // The largest score.
    Value* before = Load(maximum_);
    llvm::AllocaInst* largest = NewSlot(b().getFloatTy(), before);
    e_.DefineInMemory(a_.scores, scores_index_, 0, InScores());
    ForKeys([] {}, [&] {
      const Val x = e_.Eval(a_.x, full_);
      e_.StoreRaw(e_.ScratchPointer(tile_.scores), 0, score_offset_, PrimitiveType::kF32, x);
      b().CreateStore(Maximum(Load(largest), x.v[0]), largest);
    }, [](Value*) {});
    e_.ForgetInMemory();
    Value* maximum = Merged(Load(largest), [&](Value* x, Value* y) { return Maximum(x, y); });
    b().CreateStore(maximum, maximum_);
    Value* shifting = b().CreateSelect(IsMinusInfinity(maximum), Constant(0), maximum);
    // What HLO shifts by, and what that changes of before.
    Value* old_shift = Load(shift_);
    e_.If(own_row_inside_, [&] {
      e_.BindVar(at_.row, own_row_);
      DefineRow(a_.maximum, shifting);
      b().CreateStore(RowValue(a_.shift), shift_);
    });
    Value* moved = math::Emit(b(), math::Fn::kExp, {{b().CreateFSub(old_shift, Load(shift_))}});
    Value* factor = b().CreateSelect(IsMinusInfinity(before), Constant(1), moved);
    StoreOwnFactor(factor);
    // Exponentials, and their sum.
    llvm::AllocaInst *sum = NewSlot(b().getFloatTy(), Constant(0)), *weight = e_.Alloca(b().getFloatTy());
    e_.DefineInMemory(a_.x, full_, 0, InScores());
    ForKeys([&] { b().CreateStore(Constant(0), weight); },
            [&] {
              DefineRow(a_.maximum, shifting);
              Value* v = e_.Eval(a_.exp, full_).v[0];
              b().CreateStore(v, weight);
              b().CreateStore(b().CreateFAdd(Load(sum), v), sum);
            },
            [&](Value* key) { StoreWeight(Load(weight), key); });
    e_.ForgetInMemory();
    b().CreateStore(b().CreateFAdd(b().CreateFMul(Load(sum_), factor, "rescaled"), Load(sum)), sum_);
  }

  void StoreWeight(Value* weight, Value* key) {
    if (!gpu_.mma) {
      b().CreateStore(weight, Place(tile_.scores, own_row_, tile_.score_row, key, b().getFloatTy()));
      return;
    }
    Value* rest = scaled() ? b().CreateFMul(weight, Constant(kWeightScale)) : weight;
    for (int64_t part = 0; part < 2; ++part) {
      Value* half = ToMemory(b(), half_, rest, e_.specs().types);
      b().CreateStore(half, Place(Weights(part).bytes_before, own_row_, tile_.weight_row, key, half->getType()));
      rest = b().CreateFSub(rest, FromMemory(b(), half_, half, e_.specs().types));
    }
  }

  // ---- results ----

  void Divisors() {
    Value* maximum = Load(maximum_);
    Value* sum = Merged(Load(sum_), [&](Value* x, Value* y) { return b().CreateFAdd(x, y); });
    llvm::AllocaInst* divisor = NewSlot(b().getFloatTy(), Constant(1));
    e_.If(own_row_inside_, [&] {
      e_.BindVar(at_.row, own_row_);
      b().CreateStore(Divisor(maximum, sum), divisor);
    });
    StoreOwnFactor(Load(divisor));
  }

  Index score_offset_ = nullptr;
  Value* keys_left_ = nullptr;  // from the tile's first on
  Value *own_row_ = nullptr, *own_row_inside_ = nullptr, *rank_ = nullptr;  // of the softmax
  llvm::AllocaInst *maximum_ = nullptr, *shift_ = nullptr, *sum_ = nullptr;  // of that row, so far; the sum: of this thread's keys
  std::vector<llvm::AllocaInst*> sums_;                                  // of results
};

}  // namespace

void EmitAttentionKernel(KernelEmitter& e, const GpuPlan& plan, Value* thread) {
  plan.stages > 1 ? EmitAttentionInRegisters(e, plan, thread) : AttentionEmitter(e, plan, thread).Emit();
}

}  // namespace tenon::gpu
