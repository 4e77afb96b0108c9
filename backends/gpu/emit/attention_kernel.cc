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
#include <cmath>
#include <utility>

#include "backends/codegen/index/contraction_index.h"
#include "backends/codegen/math/math.h"
#include "backends/gpu/emit/fragments.h"
#include "backends/gpu/emit/kernels.h"
#include "backends/gpu/emit/threads.h"
#include "backends/gpu/plan/attention_tile.h"
#include "backends/gpu/plan/block_product.h"
#include "llvm/IR/Intrinsics.h"

namespace tenon::gpu {

using llvm::Value;

namespace {

constexpr int64_t kLoadsAtOnce = 4;  // of an operand, by a thread

// An operand's part of a tile, on its way to shared memory: `places` rows of `terms` elements side by side, zeros for what is outside.
struct Operand {
  const Instruction* op = nullptr;  // what is multiplied; of halves, as they lie in memory
  Index place = nullptr, term = nullptr;
  IndexTuple index;
  int64_t places = 0, terms = 0;  // of the tile
  int64_t real_terms = 0;         // without padding
  int64_t row = 0, bytes_before = 0;
  int64_t lanes = 1;        // of a load, along the terms
  bool along_terms = true;  // neighbouring threads take neighbouring terms, else places
};

class AttentionEmitter {
 public:
  AttentionEmitter(KernelEmitter& e, const GpuPlan& plan, Value* thread)
      : e_(e), f_(e.fused()), gpu_(plan), thread_(thread), fragments_(e, thread), a_(*AttentionOf(f_)), tile_(AttentionTileOf(f_, plan)) {
    IndexSpace& space = e_.space();
    const std::vector<PlanLoop>& loops = plan.loops.loops;
    queries_ = loops[loops.size() - 2].extent;
    keys_ = loops.back().extent;
    if (loops.size() > 2) batch_ = space.Var(loops[0].extent);
    row_block_ = space.Var(CeilDiv(queries_, tile_.rows));
    key_block_ = space.Var(CeilDiv(keys_, tile_.keys));
    row_ = space.Var(tile_.rows);
    key_ = space.Var(tile_.keys);
    full_ = At(a_.x->shape(), row_, key_);
    kept_.assign(full_.begin(), full_.end() - 1);
    scores_index_ = At(a_.scores->shape(), row_, key_);
    score_offset_ = space.Combine(row_, tile_.score_row, key_, 1);
    half_ = gpu_.mma ? a_.values->operand(1)->operand(0)->shape().element_type() : PrimitiveType::kF32;
    MapOperands();
  }

  void Emit() {
    e_.ForUnits([&](Value* unit) {
      Value* blocks = e_.EmitDim(CeilDiv(queries_, tile_.rows));
      Value* block = b().CreateURem(unit, blocks);
      e_.BindVar(row_block_, block);
      if (batch_ != nullptr) e_.BindVar(batch_, b().CreateUDiv(unit, blocks));
      rows_left_ = b().CreateSub(e_.EmitDim(queries_), b().CreateMul(block, e_.I64(tile_.rows)));
      own_row_ = b().CreateUDiv(thread_, e_.I64(tile_.share));
      rank_ = b().CreateURem(thread_, e_.I64(tile_.share));
      own_row_inside_ = b().CreateICmpSLT(own_row_, rows_left_);
      MakeState();
      e_.InLevel([&] { Fill(queries_operand_, rows_left_); });
      e_.Loop(e_.I64(0), e_.EmitDim(CeilDiv(keys_, tile_.keys)), e_.I64(1), [&](Value* tile) {
        e_.BindVar(key_block_, tile);
        keys_left_ = b().CreateSub(e_.EmitDim(keys_), b().CreateMul(tile, e_.I64(tile_.keys)));
        e_.InLevel([&] { Fill(keys_operand_, keys_left_); });
        Barrier(b());
        e_.InLevel([&] { gpu_.mma ? ScoresByFragments() : ScoresByThreads(); });
        Barrier(b());
        e_.InLevel([&] { Fill(values_operand_, keys_left_); });
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
  llvm::IRBuilder<>& b() { return e_.Here(); }
  Value* Constant(double v) { return llvm::ConstantFP::get(b().getFloatTy(), v); }
  Value* Load(llvm::AllocaInst* slot) { return b().CreateLoad(slot->getAllocatedType(), slot); }
  Value* IsMinusInfinity(Value* v) { return b().CreateFCmpOEQ(v, Constant(-INFINITY)); }
  llvm::AllocaInst* NewSlot(llvm::Type* type, Value* first) {
    llvm::AllocaInst* slot = e_.Alloca(type);
    b().CreateStore(first, slot);
    return slot;
  }

  // Element (batch, row of the block, column) of an array whose last two dims they are in.
  IndexTuple At(const Shape& shape, Index row, Index column, bool keys = true) {
    IndexSpace& space = e_.space();
    const std::vector<Dim> dims(shape.dims().begin(), shape.dims().end() - 2);
    IndexTuple index;
    if (batch_ != nullptr) {
      index = space.Delinearize(batch_, dims);
    } else {
      index.assign(dims.size(), space.Constant(0));
    }
    index.push_back(space.Combine(row_block_, tile_.rows, row, 1));
    index.push_back(keys ? space.Combine(key_block_, tile_.keys, column, 1) : column);
    return index;
  }

  // ---- operands ----

  void MapOperands() {
    IndexSpace& space = e_.space();
    const int64_t element = gpu_.mma ? 2 : 4;
    queries_operand_ = {.places = tile_.rows, .terms = tile_.terms, .row = tile_.query_row, .bytes_before = tile_.queries};
    keys_operand_ = {.places = tile_.keys, .terms = tile_.terms, .row = tile_.key_row, .bytes_before = tile_.others};
    values_operand_ = {.places = tile_.keys, .terms = tile_.columns, .row = tile_.value_row, .bytes_before = tile_.others};
    for (Operand* o : {&queries_operand_, &keys_operand_, &values_operand_}) {
      const bool values = o == &values_operand_;
      const Instruction& dot = values ? *a_.values : *a_.scores;
      const int64_t side = o == &queries_operand_ ? 0 : 1;
      const Dim terms = values ? dot.shape().dim(dot.shape().rank() - 1) : SummedExtents(dot).empty() ? Dim(1) : SummedExtents(dot)[0];
      o->real_terms = terms.constant();
      o->place = space.Var(o->places);
      o->term = space.Var(o->real_terms);
      ContractionIndex at;
      if (values) {
        const Index key = space.Combine(key_block_, tile_.keys, o->place, 1);
        at = MapContraction(space, dot, At(dot.shape(), row_, o->term, /*keys=*/false), Summed(dot, key));
      } else {
        at = MapContraction(space, dot, At(dot.shape(), side == 0 ? o->place : row_, side == 1 ? o->place : key_), Summed(dot, o->term));
      }
      o->index = side == 0 ? at.lhs : at.rhs;
      o->op = dot.operand(side);
      if (gpu_.mma) o->op = o->op->operand(0);
      const std::optional<OperandSource> source = SourceOf(space, f_, *o->op, o->index);
      o->along_terms = LiesAlong(source, o->term) || !LiesAlong(source, o->place);
      if (!LiesAlong(source, o->term)) continue;
      for (o->lanes = 16 / element; o->real_terms % o->lanes != 0;) o->lanes /= 2;
    }
  }
  static std::vector<Index> Summed(const Instruction& dot, Index term) {
    return SummedExtents(dot).empty() ? std::vector<Index>() : std::vector<Index>{term};
  }

  LaneMode VectorsAlong(Index variable, int64_t lanes) {
    LaneMode mode;
    mode.lanes = static_cast<int>(lanes);
    mode.vector_var = lanes > 1 ? variable->var : -1;
    mode.level = e_.innermost();
    return mode;
  }

  // `left`: places from the tile's first on.
  void Fill(const Operand& o, Value* left) {
    const int64_t line = o.terms / o.lanes, count = o.places * line;
    const int64_t at_once = count % (kLoadsAtOnce * gpu_.threads) == 0 ? kLoadsAtOnce : 1;
    llvm::Type* type = WithLanes(gpu_.mma ? MemoryType(e_.context(), half_) : b().getFloatTy(), static_cast<unsigned>(o.lanes));
    std::vector<llvm::AllocaInst*> slots;
    for (int64_t i = 0; i < at_once; ++i) slots.push_back(e_.Alloca(type));
    e_.Loop(thread_, e_.I64(count), e_.I64(at_once * gpu_.threads), [&](Value* from) {
      std::vector<Value*> places, terms;
      for (llvm::AllocaInst* slot : slots) {
        Value* at = b().CreateAdd(from, e_.I64(static_cast<int64_t>(places.size()) * gpu_.threads));
        Value* other = e_.I64(o.along_terms ? line : o.places);
        Value *fast = b().CreateURem(at, other), *slow = b().CreateUDiv(at, other);
        places.push_back(o.along_terms ? slow : fast);
        terms.push_back(b().CreateMul(o.along_terms ? fast : slow, e_.I64(o.lanes)));
        b().CreateStore(llvm::Constant::getNullValue(type), slot);
        Value* inside = b().CreateICmpSLT(places.back(), left);
        if (o.real_terms < o.terms) inside = b().CreateAnd(inside, b().CreateICmpSLT(terms.back(), e_.I64(o.real_terms)));
        e_.If(inside, [&] {
          e_.BindVar(o.place, places.back());
          e_.BindVar(o.term, terms.back());
          e_.set_mode(VectorsAlong(o.term, o.lanes));
          const Val v = Read(o);
          b().CreateStore(e_.Splat(v.v[0], v.level), slot);
          e_.set_mode({});
        });
      }
      for (size_t i = 0; i < slots.size(); ++i) {
        Value* element = b().CreateAdd(b().CreateMul(places[i], e_.I64(o.row)), terms[i]);
        Value* base = e_.ScratchPointer(o.bytes_before);
        Value* at = b().CreateGEP(type->getScalarType(), base, element);
        b().CreateAlignedStore(Load(slots[i]), at, llvm::Align(static_cast<uint64_t>(o.lanes * (gpu_.mma ? 2 : 4))));
      }
    });
  }
  // Halves as they lie in memory, anything else in registers.
  Val Read(const Operand& o) {
    if (!gpu_.mma) return e_.Eval(o.op, o.index);
    const std::optional<OperandSource> source = SourceOf(e_.space(), f_, *o.op, o.index);
    Value* base = e_.OperandPointer(static_cast<int>(source->parameter->parameter_number()));
    return e_.LoadElements(base, 0, MemoryType(e_.context(), half_), source->offset, nullptr);
  }

  // ---- places in shared memory ----

  Value* Place(int64_t bytes_before, Value* row, int64_t row_elements, Value* column, llvm::Type* element) {
    Value* base = e_.ScratchPointer(bytes_before);
    return b().CreateGEP(element, base, b().CreateAdd(b().CreateMul(row, e_.I64(row_elements)), column));
  }
  llvm::Type* Four() { return llvm::FixedVectorType::get(b().getFloatTy(), kScoreSide); }
  Value* LoadFour(int64_t bytes_before, Value* row, int64_t row_elements, Value* column) {
    return b().CreateAlignedLoad(Four(), Place(bytes_before, row, row_elements, column, b().getFloatTy()), llvm::Align(16));
  }
  Value* LoadFloat(int64_t bytes_before, Value* row, int64_t row_elements, Value* column) {
    return b().CreateLoad(b().getFloatTy(), Place(bytes_before, row, row_elements, column, b().getFloatTy()));
  }
  // Of each row: what its sums are rescaled by, in the end what they are divided by.
  Value* LoadFactor(Value* row) { return LoadFloat(0, row, 1, e_.I64(0)); }
  void StoreFactor(Value* factor) {
    e_.If(b().CreateICmpEQ(rank_, e_.I64(0)),
          [&] { b().CreateStore(factor, Place(0, own_row_, 1, e_.I64(0), b().getFloatTy())); });
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

  void Rescale(llvm::AllocaInst* sum, Value* factor) { b().CreateStore(b().CreateFMul(Load(sum), factor, "rescaled"), sum); }

  // ---- by tensor cores: each warp has 16 rows, all keys and all columns ----

  Value* WarpsRow() { return b().CreateMul(fragments_.Warp(), fragments_.I32(kWarpRows)); }
  SharedHalves Weights(int64_t part) const { return {tile_.weights + part * tile_.rows * tile_.weight_row * 2, tile_.weight_row, false}; }
  // Rows and columns of a lane's sum `i` of a fragment: columns 2 (l % 4) and the next one of rows l / 4 and l / 4 + 8.
  Value* LanesRow(size_t i) {
    Value* row = b().CreateAdd(WarpsRow(), b().CreateUDiv(fragments_.Lane(), fragments_.I32(4)));
    return b().CreateZExt(b().CreateAdd(row, fragments_.I32(i % 4 < 2 ? 0 : kMatrix)), b().getInt64Ty());
  }
  Value* LanesColumn(size_t i) {
    Value* column = b().CreateMul(b().CreateAnd(fragments_.Lane(), fragments_.I32(3)), fragments_.I32(2));
    return b().CreateZExt(b().CreateAdd(column, fragments_.I32(static_cast<int64_t>(i) / 4 * kMmaColumns)), b().getInt64Ty());
  }

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
  void StoreFragment(const std::vector<llvm::AllocaInst*>& sums, int64_t bytes_before, int64_t row_elements) {
    for (size_t i = 0; i < sums.size(); i += 2) {
      Value* pair = llvm::PoisonValue::get(llvm::FixedVectorType::get(b().getFloatTy(), 2));
      for (unsigned k = 0; k < 2; ++k) pair = b().CreateInsertElement(pair, Load(sums[i + k]), k);
      Value* at = Place(bytes_before, LanesRow(i), row_elements, LanesColumn(i), b().getFloatTy());
      b().CreateAlignedStore(pair, at, llvm::Align(8));
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
        e_.BindVar(row_, own_row_);
        e_.BindVar(key_, key);
        body();
      });
      after(key);
    });
  }
  KernelEmitter::InMemory InScores() { return {e_.ScratchPointer(tile_.scores), 0, score_offset_, PrimitiveType::kF32}; }
  void DefineRow(const Instruction* reduction, Value* v) { e_.Define(reduction, kept_, 0, {.v = {v}, .level = e_.innermost()}); }
  Value* RowValue(const Instruction* op) { return e_.Eval(op, kept_).v[0]; }

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
      e_.BindVar(row_, own_row_);
      DefineRow(a_.maximum, shifting);
      b().CreateStore(RowValue(a_.shift), shift_);
    });
    Value* moved = math::Emit(b(), math::Fn::kExp, {{b().CreateFSub(old_shift, Load(shift_))}});
    Value* factor = b().CreateSelect(IsMinusInfinity(before), Constant(1), moved);
    StoreFactor(factor);
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

  // Weights are at most 1, and f16 has so few exponents that what is left of a small one would be lost.
  static constexpr double kWeightScale = 0x1p15;
  bool scaled() const { return gpu_.mma && half_ == PrimitiveType::kF16; }

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
      e_.BindVar(row_, own_row_);
      DefineRow(a_.maximum, maximum);
      Value* never = IsMinusInfinity(RowValue(a_.shift));
      Value* total = b().CreateSelect(never, Constant(NAN), sum);
      DefineRow(a_.sum, total);
      Value* by = RowValue(a_.divisor);
      // Weights of 0 are sums' own: nothing else was added up.
      if (a_.zeros == Attention::Zeros::kNoMaximum) by = b().CreateSelect(IsMinusInfinity(maximum), Constant(1), by);
      if (a_.zeros == Attention::Zeros::kNoSum) by = b().CreateSelect(b().CreateFCmpOEQ(total, Constant(0)), Constant(1), by);
      b().CreateStore(by, divisor);
    });
    StoreFactor(Load(divisor));
  }

  void Results() {
    IndexSpace& space = e_.space();
    const int64_t columns = values_operand_.real_terms;
    const int64_t lanes = columns % kScoreSide == 0 ? kScoreSide : 1, line = columns / lanes;
    const Index row = space.Var(tile_.rows), column = space.Var(columns);
    const IndexTuple index = At(a_.values->shape(), row, column, /*keys=*/false);
    e_.Loop(thread_, e_.I64(tile_.rows * line), e_.I64(gpu_.threads), [&](Value* at) {
      Value* own = b().CreateUDiv(at, e_.I64(line));
      e_.If(b().CreateICmpSLT(own, rows_left_), [&] {
        e_.BindVar(row, own);
        e_.BindVar(column, b().CreateMul(b().CreateURem(at, e_.I64(line)), e_.I64(lanes)));
        e_.set_mode(VectorsAlong(column, lanes));
        const Index offset = space.Combine(row, tile_.result_row, column, 1);
        Val v = e_.LoadRaw({e_.ScratchPointer(tile_.queries), 0, offset, PrimitiveType::kF32});
        Value* divisor = LoadFactor(own);
        if (scaled()) v.v[0] = b().CreateFMul(v.v[0], llvm::ConstantFP::get(v.v[0]->getType(), 1 / kWeightScale));
        v.v[0] = b().CreateFDiv(v.v[0], lanes > 1 ? b().CreateVectorSplat(static_cast<unsigned>(lanes), divisor) : divisor);
        v.level = e_.innermost();
        e_.Define(a_.values, index, 0, v);
        e_.StoreResult(0, space.Linear(index, f_.results[0].strides), e_.Eval(f_.roots[0], index));
        e_.set_mode({});
      });
    });
  }

  KernelEmitter& e_;
  const FusedKernel& f_;
  const GpuPlan& gpu_;
  Value* const thread_;  // in the block, i64
  Fragments fragments_;
  const Attention a_;
  const AttentionTile tile_;
  Dim queries_, keys_;
  PrimitiveType half_ = PrimitiveType::kF32;
  Index batch_ = nullptr, row_block_ = nullptr, key_block_ = nullptr, row_ = nullptr, key_ = nullptr;
  IndexTuple full_, kept_, scores_index_;
  Index score_offset_ = nullptr;
  Operand queries_operand_, keys_operand_, values_operand_;
  Value *rows_left_ = nullptr, *keys_left_ = nullptr;                    // from the tile's first on
  Value *own_row_ = nullptr, *own_row_inside_ = nullptr, *rank_ = nullptr;  // of the softmax
  llvm::AllocaInst *maximum_ = nullptr, *shift_ = nullptr, *sum_ = nullptr;  // of that row, so far; the sum: of this thread's keys
  std::vector<llvm::AllocaInst*> sums_;                                  // of results
};

}  // namespace

void EmitAttentionKernel(KernelEmitter& e, const GpuPlan& plan, Value* thread) { AttentionEmitter(e, plan, thread).Emit(); }

}  // namespace tenon::gpu
