#include <cmath>
#include <cstring>

#include "hlo/eval/internal.h"
#include "hlo/eval/region.h"
#include "hlo/eval/scalar_op.h"

namespace tenon::eval {
namespace {

// The result's dims: those of the first operand that is not a broadcast scalar (they may be below a dynamic bound).
Shape ResultShape(const Instruction& i, Operands operands) {
  Shape shape = i.shape();
  for (const Literal& l : operands) {
    if (l.shape().rank() != shape.rank()) continue;
    for (int64_t d = 0; d < shape.rank(); ++d) shape.set_dim(d, l.shape().dim(d));
    break;
  }
  return shape;
}

absl::StatusOr<Literal> Elementwise(Context&, const Instruction& i, Operands operands) {
  if (i.opcode() == Opcode::kCopy) return operands[0];  // of any shape; literals share their bytes
  TENON_ASSIGN_OR_RETURN(ScalarOp op, ScalarOp::Resolve(i));
  Literal result(ResultShape(i, operands));
  absl::InlinedVector<ScalarOp::Operand, 3> in;
  for (const Literal& l : operands) {
    bool splat = l.shape().is_scalar() && !result.shape().is_scalar();
    if (!splat && l.num_elements() != result.num_elements()) {
      return Invalid(i, "operands of different sizes");
    }
    in.push_back({l.bytes(), splat});
  }
  op.Run(in, result.mutable_bytes(), result.num_elements());
  return result;
}

absl::StatusOr<Literal> Map(Context& context, const Instruction& i, Operands operands) {
  TENON_ASSIGN_OR_RETURN(Region region, Region::Make(context, *i.to_apply()));
  Literal result(i.shape());
  std::byte* out = result.mutable_bytes();
  const int64_t width = ByteWidth(result.type());
  for (int64_t at = 0, n = result.num_elements(); at < n; at += Region::kMaxLanes) {
    int64_t lanes = std::min(Region::kMaxLanes, n - at);
    std::vector<ScalarOp::Operand> args;
    for (const Literal& l : operands) args.push_back({l.bytes() + at * ByteWidth(l.type())});
    TENON_RETURN_IF_ERROR(region.Run(args, {out + at * width}, lanes));
  }
  return result;
}

// Elements as one stream of bits, low bits first: a wide element is its parts in the new minor dimension.
absl::StatusOr<Literal> BitcastConvert(Context&, const Instruction& i, Operands operands) {
  const Literal& x = operands[0];
  Literal result(i.shape());
  // A pred is stored in a byte, as inference has it.
  const auto bits = [](PrimitiveType t) { return t == PrimitiveType::kPred ? 8 : BitWidth(t); };
  const int from = bits(x.type()), to = bits(result.type());
  std::byte* out = result.mutable_bytes();
  if (x.num_elements() * from != result.num_elements() * to) return Invalid(i, "sizes differ");
  if (from == 8 * ByteWidth(x.type()) && to == 8 * ByteWidth(result.type())) {
    std::memcpy(out, x.bytes(), x.size_bytes());
    return result;
  }
  auto bit = [](const std::byte* data, int64_t element_bits, int64_t width, int64_t position) {
    int64_t element = position / element_bits, at = position % element_bits;
    return (static_cast<uint8_t>(data[element * width + at / 8]) >> (at % 8)) & 1;
  };
  const int64_t x_width = ByteWidth(x.type()), width = ByteWidth(result.type());
  for (int64_t p = 0, n = x.num_elements() * from; p < n; ++p) {
    if (!bit(x.bytes(), from, x_width, p)) continue;
    int64_t element = p / to, at = p % to;
    out[element * width + at / 8] |= std::byte{1} << (at % 8);
  }
  if (IsSigned(result.type()) && to < 8) {  // sign-extended in memory
    for (int64_t e = 0; e < result.num_elements(); ++e) {
      result.SetFromInt64(e, static_cast<int64_t>(out[e * width]));
    }
  }
  return result;
}

absl::StatusOr<Literal> BatchNormInference(Context&, const Instruction& i, Operands operands) {
  const Literal& x = operands[0];
  const int64_t feature = i.attrs().get<int64_t>(Attr::kFeatureIndex);
  const double epsilon = i.attrs().get<double>(Attr::kEpsilon);
  Literal result(i.shape());
  std::vector<int64_t> dims = x.shape().constant_dims();
  int64_t inner = Product(absl::MakeSpan(dims).subspan(feature + 1));
  for (int64_t e = 0, n = x.num_elements(); e < n; ++e) {
    int64_t f = e / inner % dims[feature];
    double scale = operands[1].GetAsDouble(f), offset = operands[2].GetAsDouble(f);
    double mean = operands[3].GetAsDouble(f), variance = operands[4].GetAsDouble(f);
    result.SetFromDouble(
        e, (x.GetAsDouble(e) - mean) * (scale / std::sqrt(variance + epsilon)) + offset);
  }
  return result;
}

const std::vector<HandlerRow>& Rows() {
  static const auto* rows = [] {
    auto* all = new std::vector<HandlerRow>;
    for (int op = 0; op < kNumOpcodes; ++op) {
      if (ScalarOp::Handles(static_cast<Opcode>(op))) {
        all->push_back({static_cast<Opcode>(op), Elementwise});
      }
    }
    all->push_back({Opcode::kMap, Map});
    all->push_back({Opcode::kBitcastConvert, BitcastConvert});
    all->push_back({Opcode::kBatchNormInference, BatchNormInference});
    return all;
  }();
  return *rows;
}

}  // namespace

absl::Span<const HandlerRow> ElementwiseHandlers() { return Rows(); }

absl::StatusOr<Literal> PointwiseCall(Context& context, const Instruction& i, Operands operands) {
  return Elementwise(context, i, operands);
}

}  // namespace tenon::eval
