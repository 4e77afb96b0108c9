#include "hlo/eval/scalar_op.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "hlo/eval/scalar_kernels.h"
#include "hlo/own_calls.h"

namespace tenon::eval {
namespace {

constexpr int64_t kChunk = 256;

bool IsMove(Opcode opcode) { return opcode == Opcode::kSelect || opcode == Opcode::kCopy; }

}  // namespace

bool ScalarOp::Handles(Opcode opcode) {
  const OpInfo& info = InfoOf(opcode);
  return opcode == Opcode::kCopy ||
         (info.family == Family::kElementwise && opcode != Opcode::kMap &&
          opcode != Opcode::kBatchNormInference && opcode != Opcode::kBitcastConvert);
}

bool ScalarOp::Handles(const Instruction& i) { return Handles(i.opcode()) || IsPointwiseCall(i); }

absl::StatusOr<ScalarOp> ScalarOp::Resolve(const Instruction& i) {
  ScalarOp op;
  op.arity_ = static_cast<int>(i.operand_count());
  TENON_CHECK(op.arity_ >= 1 && op.arity_ <= 3, i.name());
  PrimitiveType result = i.shape().element_type();
  // select computes in its values' type, the others in the first operand's.
  PrimitiveType type = i.operand(i.opcode() == Opcode::kSelect ? 1 : 0)->shape().element_type();
  op.out_width_ = ByteWidth(result);
  op.params_ = {BitWidth(type), i.attrs().get_or<int64_t>(Attr::kExponentBits, 0),
                i.attrs().get_or<int64_t>(Attr::kMantissaBits, 0), type, result};
  for (int k = 0; k < op.arity_; ++k) {
    PrimitiveType t = i.operand(k)->shape().element_type();
    op.loaders_[k] = LoaderOf(t);
    op.widths_[k] = ByteWidth(t);
  }
  op.storer_ = StorerOf(result);
  op.raw_ = IsMove(i.opcode()) || i.opcode() == Opcode::kReducePrecision;
  if (i.opcode() == Opcode::kConvert) {
    op.kernel_ = ConvertKernel(type, result);
  } else if (i.opcode() == Opcode::kCompare) {
    op.kernel_ = CompareKernel(i.comparison_direction(),
                               i.attrs().get_or<std::string>(Attr::kComparisonType, ""), type);
  } else if (IsPointwiseCall(i)) {
    op.kernel_ = FmaKernel(type);
  } else {
    op.kernel_ = KernelOf(i.opcode(), type, result);
  }
  if (op.kernel_ == nullptr) {
    return absl::UnimplementedError(absl::StrCat(std::string(OpcodeName(i.opcode())), " ", i.name(),
                                                 " of ", std::string(PrimitiveTypeName(type))));
  }
  return op;
}

void ScalarOp::Run(absl::Span<const Operand> operands, std::byte* out, int64_t n) const {
  alignas(16) std::byte wide[4][kChunk * kDomainBytes];
  const void* in[3];
  auto load_splat = [&](int k, int64_t count) {
    // Loaded once, repeated: conversion has no side effects.
    const int64_t bytes = raw_ ? widths_[k] : kDomainBytes;
    alignas(16) std::byte one[kDomainBytes];
    if (raw_) {
      std::memcpy(one, operands[k].data, bytes);
      for (int64_t j = 0; j < count; ++j) std::memcpy(wide[k] + j * bytes, one, bytes);
    } else {
      alignas(16) std::byte repeated[kChunk * kDomainBytes];
      for (int64_t j = 0; j < count; ++j) {
        std::memcpy(repeated + j * widths_[k], operands[k].data, widths_[k]);
      }
      loaders_[k](repeated, wide[k], count);
    }
  };
  for (int k = 0; k < arity_; ++k) {
    if (operands[k].splat) {
      load_splat(k, std::min(n, kChunk));
      in[k] = wide[k];
    }
  }
  for (int64_t start = 0; start < n; start += kChunk) {
    int64_t count = std::min(kChunk, n - start);
    for (int k = 0; k < arity_; ++k) {
      if (operands[k].splat) continue;
      const std::byte* data = operands[k].data + start * widths_[k];
      if (raw_) {
        in[k] = data;
      } else {
        loaders_[k](data, wide[k], count);
        in[k] = wide[k];
      }
    }
    std::byte* to = out + start * out_width_;
    if (raw_) {
      kernel_(in, to, count, params_);
    } else {
      kernel_(in, wide[3], count, params_);
      storer_(wide[3], to, count);
    }
  }
}

}  // namespace tenon::eval
