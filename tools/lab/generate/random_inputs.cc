#include "tools/lab/generate/random_inputs.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tools/lab/judge/error_rules.h"

namespace tenon::lab {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

double SmallestOf(PrimitiveType type) {
  switch (type) {
    case PrimitiveType::kF64: return 5e-324;
    case PrimitiveType::kF32: return 0x1p-149;
    case PrimitiveType::kBF16: return 0x1p-133;
    case PrimitiveType::kF16: return 0x1p-24;
    default: return 0x1p-9;
  }
}

double RandomFloat(PrimitiveType type, Style style, Random& random) {
  const double sign = random.OneIn(2) ? -1 : 1;
  switch (style) {
    case Style::kSpecial: {
      if (random.OneIn(2)) return sign * std::ldexp(1 + random.Unit(), static_cast<int>(random.Between(-6, 6)));
      const double tiny = SmallestOf(type), large = LargestFinite(type);
      const double specials[] = {std::nan(""), kInf, 0.0, 1.0, tiny, 3 * tiny, large, large / 2, 0.5, 2.5, 1e10, 127.5};
      return std::copysign(random.Pick(specials), sign);
    }
    case Style::kSmallIntegers: case Style::kIndices:
      return static_cast<double>(random.Between(-4, 4));
    case Style::kPowers:
      return sign * std::ldexp(1.0, static_cast<int>(random.Between(-3, 3)));
    default:
      return sign * random.Unit();
  }
}

int64_t RandomInteger(PrimitiveType type, Style style, Random& random) {
  const int bits = BitWidth(type);
  switch (style) {
    case Style::kSpecial: {
      const int64_t top = bits >= 64 ? INT64_MAX : (int64_t{1} << (bits - 1)) - 1;
      const int64_t specials[] = {0, 1, -1, top, -top - 1, -top, bits, bits - 1, bits + 1, 2, -2, 7};
      return random.Pick(specials);
    }
    case Style::kIndices:
      return random.OneIn(12) ? random.Between(-100, 1000) : random.Between(-2, 9);
    case Style::kBits: case Style::kUnit:
      return static_cast<int64_t>(random.Next());
    case Style::kPowers:
      return static_cast<int64_t>(uint64_t{1} << random.Below(bits));
    default:
      return random.Between(-4, 4);
  }
}

// Any bits of a float type; a NaN is the quiet one, whose bits every conversion keeps.
void FillBits(Literal* l, Random& random) {
  const int64_t width = ByteWidth(l->type());
  const uint8_t mask = BitWidth(l->type()) < 8 ? static_cast<uint8_t>((1 << BitWidth(l->type())) - 1) : 0xff;
  std::byte* bytes = l->mutable_bytes();
  for (int64_t i = 0; i < l->num_elements(); ++i) {
    uint64_t bits = random.Next();
    std::memcpy(bytes + i * width, &bits, width);
    if (mask != 0xff) bytes[i] &= static_cast<std::byte>(mask);
    if (std::isnan(l->GetAsDouble(i))) l->SetFromDouble(i, std::nan(""));
  }
}

Style PickStyle(const Shape& shape, Random& random) {
  if (IsIntegral(shape.element_type())) {
    if (shape.rank() == 0 && !random.OneIn(4)) return Style::kIndices;
    constexpr Style kStyles[] = {Style::kIndices, Style::kIndices, Style::kSmallIntegers, Style::kSpecial, Style::kBits, Style::kPowers};
    return random.Pick(kStyles);
  }
  constexpr Style kStyles[] = {Style::kSpecial, Style::kSpecial, Style::kSmallIntegers, Style::kSmallIntegers,
                               Style::kUnit,    Style::kUnit,    Style::kPowers,        Style::kBits};
  return random.Pick(kStyles);
}

}  // namespace

uint64_t Random::Next() {
  uint64_t z = state_ += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

Literal RandomArray(const Shape& shape, Style style, Random& random) {
  Literal l(Shape::Array(shape.element_type(), shape.constant_dims()));
  const PrimitiveType type = l.type();
  if (l.num_elements() == 0) return l;
  if (IsComplex(type)) {
    const Literal parts = RandomArray(Shape::Array(ComplexComponent(type), {2 * l.num_elements()}), style, random);
    std::memcpy(l.mutable_bytes(), parts.bytes(), l.size_bytes());
  } else if (IsFloat(type) && style == Style::kBits) {
    FillBits(&l, random);
  } else {
    for (int64_t i = 0; i < l.num_elements(); ++i) {
      if (IsFloat(type)) {
        l.SetFromDouble(i, RandomFloat(type, style, random));
      } else if (type == PrimitiveType::kPred) {
        l.SetFromInt64(i, random.Below(2));
      } else {
        l.SetFromInt64(i, RandomInteger(type, style, random));
      }
    }
  }
  return l;
}

Literal RandomArgument(const Shape& shape, Random& random) {
  if (shape.is_tuple()) {
    std::vector<Literal> elements;
    for (const Shape& e : shape.elements()) elements.push_back(RandomArgument(e, random));
    return Literal::Tuple(std::move(elements));
  }
  if (!shape.is_array()) return Literal(shape);  // a token
  const Style style = PickStyle(shape, random);
  return RandomArray(shape, style, random);
}

std::vector<Literal> RandomInputs(const Module& module, uint64_t seed) {
  Random random(seed);
  std::vector<Literal> arguments;
  // Each parameter has a generator of its own: what one takes doesn't move the others.
  for (const Instruction* p : module.entry()->parameters()) {
    Random own = random.Fork();
    arguments.push_back(RandomArgument(p->shape(), own));
  }
  return arguments;
}

}  // namespace tenon::lab
