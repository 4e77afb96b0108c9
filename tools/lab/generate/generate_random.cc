// Random numbers. What rng draws is part of the evaluator's definition of a run, so its bits are compared like any others.
#include "tools/lab/generate/generator.h"

namespace tenon::lab {
namespace {

bool RngBitGenerator(Scope& s, Opcode opcode) {
  const bool philox = s.random().OneIn(2);
  const int64_t words = philox ? s.random().Between(2, 3) : 2;
  const Value state = s.Shaped(PrimitiveType::kU64, {words});
  const PrimitiveType type = s.Type([](PrimitiveType t) { return IsUnsigned(t) && BitWidth(t) >= 8; });
  const std::vector<Dim> dims = s.Dims(0, 3);
  if (s.WouldBeRefused(dims)) return false;
  const bool by_default = s.random().OneIn(4) && philox == (words == 3);
  const std::string algorithm = by_default ? "rng_default" : philox ? "rng_philox" : "rng_three_fry";
  const Shape shape = Shape::Tuple({state.op->shape(), Shape(type, dims)});
  Instruction* y = s.Try(opcode, {state.op}, With(Attr::kRngAlgorithm, algorithm), shape);
  if (y == nullptr) return false;
  s.Add(Part(s, y, 0));
  s.Add(Part(s, y, 1));
  return true;
}

bool Rng(Scope& s, Opcode opcode) {
  const bool normal = s.random().OneIn(3);
  const PrimitiveType type = s.Type([&](PrimitiveType t) {
    return (IsFloat(t) && BitWidth(t) >= 16) || (!normal && IsIntegral(t) && BitWidth(t) >= 32);
  });
  Instruction* low = s.b().ScalarConstant(type, static_cast<double>(s.random().Between(0, 3)));
  Instruction* high = s.b().ScalarConstant(type, static_cast<double>(s.random().Between(4, 9)));
  const Shape shape(type, s.Dims(0, 3));
  if (s.WouldBeRefused(shape.dims())) return false;
  Instruction* y = s.Try(opcode, {low, high}, With(Attr::kDistribution, std::string(normal ? "rng_normal" : "rng_uniform")), shape);
  if (y == nullptr) return false;
  s.Add(y, !normal);  // a normal draw goes through log and cos
  if (!s.random().OneIn(3)) return true;
  // Drawn again alike, as two dropouts of one layer are: still another draw.
  Instruction* again = s.Try(opcode, {low, high}, y->attrs(), shape);
  return again != nullptr && (s.Add(again, !normal), true);
}

bool RngGetAndUpdateState(Scope& s, Opcode opcode) {
  Instruction* y = s.Try(opcode, {}, With(Attr::kDelta, s.random().Between(1, 100)), Shape::Array(PrimitiveType::kU64, {2}));
  return y != nullptr && (s.Add(y), true);
}

constexpr Row kRows[] = {
    {Opcode::kRng, Rng},
    {Opcode::kRngBitGenerator, RngBitGenerator},
    {Opcode::kRngGetAndUpdateState, RngGetAndUpdateState},
};

}  // namespace

absl::Span<const Row> RandomRows() { return kRows; }

}  // namespace tenon::lab
