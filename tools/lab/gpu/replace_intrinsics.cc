#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Intrinsics.h"
#include "tools/lab/gpu/host_functions.h"
#include "tools/lab/gpu/host_math.h"
#include "tools/lab/gpu/machine.h"
#include "tools/lab/gpu/mma.h"
#include "tools/lab/gpu/prepare.h"

namespace tenon::gpu {
namespace {

using llvm::Value;

const absl::flat_hash_map<std::string_view, WarpOp>& WarpIntrinsics() {
  static const auto* table = new absl::flat_hash_map<std::string_view, WarpOp>{
      {"bar.warp.sync", WarpOp::kSync},          {"vote.all.sync", WarpOp::kVoteAll},        {"vote.any.sync", WarpOp::kVoteAny},
      {"vote.uni.sync", WarpOp::kVoteUniform},   {"vote.ballot.sync", WarpOp::kBallot},      {"match.any.sync.i32", WarpOp::kMatchAny},
      {"match.any.sync.i64", WarpOp::kMatchAny}, {"match.all.sync.i32p", WarpOp::kMatchAll}, {"match.all.sync.i64p", WarpOp::kMatchAll},
      {"redux.sync.add", WarpOp::kReduceAdd},    {"redux.sync.min", WarpOp::kReduceMin},     {"redux.sync.max", WarpOp::kReduceMax},
      {"redux.sync.umin", WarpOp::kReduceUMin},  {"redux.sync.umax", WarpOp::kReduceUMax},   {"redux.sync.and", WarpOp::kReduceAnd},
      {"redux.sync.or", WarpOp::kReduceOr},      {"redux.sync.xor", WarpOp::kReduceXor},
  };
  return *table;
}

const absl::flat_hash_map<std::string_view, WarpOp>& ShuffleModes() {
  static const auto* table = new absl::flat_hash_map<std::string_view, WarpOp>{
      {"up", WarpOp::kShuffleUp}, {"down", WarpOp::kShuffleDown}, {"bfly", WarpOp::kShuffleXor}, {"idx", WarpOp::kShuffleIndex}};
  return *table;
}

const absl::flat_hash_map<std::string_view, MmaShape>& Products() {
  static const auto* table = new absl::flat_hash_map<std::string_view, MmaShape>{
      {"mma.m16n8k16.row.col.f16.f16", {MmaType::kF16, 16, true}}, {"mma.m16n8k16.row.col.f32.f32", {MmaType::kF16, 16, false}},
      {"mma.m16n8k8.row.col.f16.f16", {MmaType::kF16, 8, true}},   {"mma.m16n8k8.row.col.f32.f32", {MmaType::kF16, 8, false}},
      {"mma.m16n8k16.row.col.bf16", {MmaType::kBf16, 16, false}},  {"mma.m16n8k8.row.col.bf16", {MmaType::kBf16, 8, false}},
      {"mma.m16n8k8.row.col.tf32", {MmaType::kTf32, 8, false}},    {"mma.m16n8k4.row.col.tf32", {MmaType::kTf32, 4, false}},
  };
  return *table;
}

class Replacer {
 public:
  Replacer(llvm::CallInst* call, uint32_t site)
      : call_(call), b_(call), i32_(b_.getInt32Ty()), i64_(b_.getInt64Ty()), site_(b_.getInt32(site)), type_(call->getType()) {}

  // What takes the call's place; null for a call without a value, or (Unimplemented) for one that nobody knows.
  absl::StatusOr<Value*> Nvvm(llvm::StringRef name) {
    if (name.consume_front("read.ptx.sreg.")) return Register(name);
    if (name.consume_front("barrier.cta.")) return Barrier(name);
    if (name.consume_front("shfl.sync.")) return Shuffle(name);
    if (auto op = WarpIntrinsics().find(std::string_view(name)); op != WarpIntrinsics().end()) return Warp(op->second);
    if (auto shape = Products().find(std::string_view(name)); shape != Products().end()) return Product(shape->second);
    if (name.consume_front("ldmatrix.sync.aligned.m8n8.")) return LoadMatrix(name);
    if (name.consume_front("cp.async.")) return Copy(name);
    if (name.starts_with("membar.") || name == "nanosleep") return nullptr;
    return Math(name);
  }

  // fma of 16 bits is rounded once; by way of f32, as code for the host has it, twice.
  Value* WideFma() {
    llvm::Type* wide = type_->getWithNewType(b_.getDoubleTy());
    Value* args[3];
    for (int k = 0; k < 3; ++k) args[k] = b_.CreateFPExt(Arg(k), wide);
    return b_.CreateFPTrunc(b_.CreateIntrinsic(wide, llvm::Intrinsic::fma, args), type_);
  }

 private:
  Value* Arg(unsigned k) const { return call_->getArgOperand(k); }
  static absl::Status Unknown() { return absl::UnimplementedError("which the emulator doesn't know"); }

  absl::StatusOr<Value*> Register(llvm::StringRef name) {
    const int index = RegisterIndex(name.str());
    if (index < 0) return Unknown();
    llvm::CallInst* value = CallHost(b_, "tenon_register", i32_, {b_.getInt32(static_cast<uint32_t>(index))});
    value->setDoesNotAccessMemory();  // to its thread it is a constant
    value->setDoesNotThrow();
    return value;
  }

  absl::StatusOr<Value*> Barrier(llvm::StringRef name) {
    const bool all = name.consume_back(".all");
    if (!all && !name.consume_back(".count")) return Unknown();
    const bool aligned = name.consume_back(".aligned");
    const unsigned predicate = all ? 1 : 2;
    const auto make = [&](BarrierKind kind) -> Value* {
      const bool reduces = kind != BarrierKind::kSync;
      Value* count = all ? b_.getInt32(0) : Arg(1);
      Value* p = reduces ? b_.CreateZExt(Arg(predicate), i32_) : b_.getInt32(0);
      Value* result =
          CallHost(b_, "tenon_barrier", i32_, {Arg(0), count, b_.getInt32(static_cast<uint32_t>(kind)), p, b_.getInt1(aligned), site_});
      return reduces ? b_.CreateZExtOrTrunc(result, type_) : nullptr;
    };
    if (name == "sync") return make(BarrierKind::kSync);
    if (name == "red.popc") return make(BarrierKind::kPopcount);
    if (name == "red.and") return make(BarrierKind::kAnd);
    if (name == "red.or") return make(BarrierKind::kOr);
    return Unknown();
  }

  Value* CallWarp(WarpOp op, Value* mask, Value* a, Value* b, Value* c) {
    return CallHost(b_, "tenon_warp", i64_, {b_.getInt32(static_cast<uint32_t>(op)), mask, a, b, c, site_});
  }
  // {i32, i1} of an i64.
  Value* Pair(Value* result, llvm::Type* first) {
    Value* value = b_.CreateBitCast(b_.CreateTrunc(result, i32_), first);
    Value* predicate = b_.CreateTrunc(b_.CreateLShr(result, 32), b_.getInt1Ty());
    return b_.CreateInsertValue(b_.CreateInsertValue(llvm::PoisonValue::get(type_), value, 0), predicate, 1);
  }

  absl::StatusOr<Value*> Shuffle(llvm::StringRef name) {
    const bool pair = name.consume_back("p");
    llvm::Type* element = pair ? type_->getStructElementType(0) : type_;
    if (!name.consume_back(".i32") && !name.consume_back(".f32")) return Unknown();
    const auto mode = ShuffleModes().find(std::string_view(name));
    if (mode == ShuffleModes().end()) return Unknown();
    Value* a = b_.CreateZExt(b_.CreateBitCast(Arg(1), i32_), i64_);
    Value* result = CallWarp(mode->second, Arg(0), a, Arg(2), Arg(3));
    return pair ? Pair(result, element) : b_.CreateBitCast(b_.CreateTrunc(result, i32_), element);
  }

  absl::StatusOr<Value*> Warp(WarpOp op) {
    Value* zero = b_.getInt32(0);
    const bool redux = op >= WarpOp::kReduceAdd && op <= WarpOp::kReduceXor;  // which has its mask behind its value
    Value* value = op == WarpOp::kSync ? b_.getInt64(0) : b_.CreateZExt(Arg(redux ? 0 : 1), i64_);
    Value* result = CallWarp(op, Arg(redux ? 1 : 0), value, zero, zero);
    if (op == WarpOp::kSync) return nullptr;
    return op == WarpOp::kMatchAll ? Pair(result, i32_) : b_.CreateTrunc(result, type_);
  }

  // Registers of 32 bits in memory of the frame.
  llvm::AllocaInst* Registers(int n) {
    llvm::BasicBlock& entry = call_->getFunction()->getEntryBlock();
    llvm::IRBuilder<> at(&entry, entry.begin());
    return at.CreateAlloca(llvm::ArrayType::get(i32_, static_cast<uint64_t>(n)));
  }
  Value* Element(llvm::AllocaInst* registers, int k) {
    return b_.CreateConstInBoundsGEP2_32(registers->getAllocatedType(), registers, 0, k);
  }
  Value* Results(llvm::AllocaInst* registers, int n) {
    if (n == 1) return b_.CreateLoad(type_, Element(registers, 0));
    Value* all = llvm::PoisonValue::get(type_);
    for (int k = 0; k < n; ++k) {
      all = b_.CreateInsertValue(all, b_.CreateLoad(type_->getStructElementType(k), Element(registers, k)), k);
    }
    return all;
  }

  absl::StatusOr<Value*> Product(const MmaShape& shape) {
    const int n = static_cast<int>(call_->arg_size());
    if (n != shape.a_registers() + shape.b_registers() + shape.c_registers()) return Unknown();
    llvm::AllocaInst *in = Registers(n), *out = Registers(shape.c_registers());
    for (int k = 0; k < n; ++k) b_.CreateStore(Arg(k), Element(in, k));
    CallHost(b_, "tenon_fragments", b_.getVoidTy(),
             {b_.getInt32(static_cast<uint32_t>(WarpOp::kMma)), b_.getInt32(shape.Encode()), b_.getInt32(0), in, out, site_});
    return Results(out, shape.c_registers());
  }

  absl::StatusOr<Value*> LoadMatrix(llvm::StringRef name) {
    name = name.take_front(name.rfind(".p"));  // the address space of the pointer
    if (!name.consume_back(".b16")) return Unknown();
    const bool transposed = name.consume_back(".trans");
    const int n = name == "x1" ? 1 : name == "x2" ? 2 : name == "x4" ? 4 : 0;
    if (n == 0) return Unknown();
    llvm::AllocaInst* out = Registers(n);
    CallHost(b_, "tenon_fragments", b_.getVoidTy(),
             {b_.getInt32(static_cast<uint32_t>(WarpOp::kLoadMatrix)), b_.getInt32(static_cast<uint32_t>(n)), b_.getInt32(transposed),
              Generic(b_, Arg(0)), out, site_});
    return Results(out, n);
  }

  absl::StatusOr<Value*> Copy(llvm::StringRef name) {
    llvm::Type* none = b_.getVoidTy();
    if (name == "commit.group") {
      CallHost(b_, "tenon_copies_commit", none, {});
      return nullptr;
    }
    if (name == "wait.group" || name == "wait.all") {
      CallHost(b_, "tenon_copies_wait", none, {name == "wait.all" ? b_.getInt32(~0u) : Arg(0)});
      return nullptr;
    }
    if (!name.consume_front("ca.shared.global.") && !name.consume_front("cg.shared.global.")) return Unknown();
    const bool partly = name.consume_back(".s");
    unsigned bytes = 0;
    if (name.getAsInteger(10, bytes)) return Unknown();
    Value* n = b_.getInt32(bytes);
    CallHost(b_, "tenon_copy", none, {Generic(b_, Arg(0)), Generic(b_, Arg(1)), n, partly ? Arg(2) : n, site_});
    return nullptr;
  }

  absl::StatusOr<Value*> Math(llvm::StringRef name) {
    const std::string host = "tenon_math_" + name.str();
    for (const UnaryMath& f : UnaryMathTable()) {
      if (name == f.intrinsic) return CallHost(b_, host, type_, {Arg(0)});
    }
    if (name == "fma.rn.f" || name == "fma.rn.d") return b_.CreateIntrinsic(type_, llvm::Intrinsic::fma, {Arg(0), Arg(1), Arg(2)});
    if (name == "fma.rn.f16" || name == "fma.rn.bf16" || name == "fma.rn.f16x2" || name == "fma.rn.bf16x2") return WideFma();
    if (name == "fma.rn.ftz.f") return CallHost(b_, host, type_, {Arg(0), Arg(1), Arg(2)});
    if (name == "f2tf32.rna" || name == "f2tf32.rn") return CallHost(b_, host, i32_, {Arg(0)});
    if (name == "ff2f16x2.rn" || name == "ff2bf16x2.rn") return b_.CreateBitCast(CallHost(b_, host, i32_, {Arg(0), Arg(1)}), type_);
    if (name == "f2bf16.rn" || name == "f2f16.rn") return b_.CreateFPTrunc(Arg(0), type_);
    if (name == "add.rn.f" || name == "add.rn.d") return b_.CreateFAdd(Arg(0), Arg(1));
    if (name == "mul.rn.f" || name == "mul.rn.d") return b_.CreateFMul(Arg(0), Arg(1));
    if (name == "div.rn.f" || name == "div.rn.d" || name == "div.approx.f" || name == "div.full") return b_.CreateFDiv(Arg(0), Arg(1));
    if (name == "mulhi.i" || name == "mulhi.ll") return HighProduct(true);
    if (name == "mulhi.ui" || name == "mulhi.ull") return HighProduct(false);
    return MinMax(name);
  }

  absl::StatusOr<Value*> MinMax(llvm::StringRef name) {
    const bool max = name.consume_front("fmax.");
    if (!max && !name.consume_front("fmin.")) return Unknown();
    const bool nan = name.consume_front("nan.");
    if (name != "f" && name != "d" && name != "f16" && name != "f16x2" && name != "bf16" && name != "bf16x2") return Unknown();
    const auto id =
        nan ? (max ? llvm::Intrinsic::maximum : llvm::Intrinsic::minimum) : (max ? llvm::Intrinsic::maxnum : llvm::Intrinsic::minnum);
    return b_.CreateBinaryIntrinsic(id, Arg(0), Arg(1));
  }

  Value* HighProduct(bool is_signed) {
    const unsigned bits = type_->getIntegerBitWidth();
    llvm::Type* wide = b_.getIntNTy(2 * bits);
    const auto widen = [&](Value* v) { return is_signed ? b_.CreateSExt(v, wide) : b_.CreateZExt(v, wide); };
    return b_.CreateTrunc(b_.CreateLShr(b_.CreateMul(widen(Arg(0)), widen(Arg(1))), bits), type_);
  }

  llvm::CallInst* call_;
  llvm::IRBuilder<> b_;
  llvm::Type *i32_, *i64_;
  Value* site_;
  llvm::Type* type_;
};

absl::StatusOr<Value*> Replacement(llvm::CallInst* call, uint32_t site) {
  llvm::StringRef name = call->getCalledFunction()->getName();
  if (name.consume_front("llvm.nvvm.")) return Replacer(call, site).Nvvm(name);
  switch (call->getIntrinsicID()) {
    case llvm::Intrinsic::trap:
    case llvm::Intrinsic::debugtrap: {
      llvm::IRBuilder<> b(call);
      CallHost(b, "tenon_trap", b.getVoidTy(), {b.getInt32(site)});
      return nullptr;
    }
    case llvm::Intrinsic::fma:
      return call->getType()->getScalarSizeInBits() == 16 ? Replacer(call, site).WideFma() : call;
    default:
      if (SaysNothing(*llvm::cast<llvm::IntrinsicInst>(call))) return nullptr;
      return call;
  }
}

}  // namespace

absl::Status ReplaceIntrinsic(llvm::CallInst* call, uint32_t site) {
  absl::StatusOr<Value*> value = Replacement(call, site);
  if (!value.ok()) {
    return absl::UnimplementedError(absl::StrCat(call->getFunction()->getName().str(), ": call of ",
                                                 call->getCalledFunction()->getName().str(), ", ", value.status().message()));
  }
  if (*value == call) return absl::OkStatus();
  if (*value != nullptr) call->replaceAllUsesWith(*value);
  call->eraseFromParent();
  return absl::OkStatus();
}

bool MayWait(const llvm::Function& intrinsic) {
  llvm::StringRef name = intrinsic.getName();
  if (!name.consume_front("llvm.nvvm.")) return false;
  return name.starts_with("barrier.") || name.starts_with("shfl.") || name.starts_with("mma.") || name.starts_with("ldmatrix.") ||
         WarpIntrinsics().contains(std::string_view(name));
}

}  // namespace tenon::gpu
