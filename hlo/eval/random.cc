// Counter-based generators: Threefry-2x32 (20 rounds) and Philox-4x32 (10 rounds), Salmon et al., "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011, with the counters and the order of results that XLA gives them.
#include <array>
#include <cmath>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "hlo/eval/internal.h"

namespace tenon::eval {
namespace {

using U32x2 = std::array<uint32_t, 2>;
using U32x4 = std::array<uint32_t, 4>;

uint32_t Low(uint64_t x) { return static_cast<uint32_t>(x); }
uint32_t High(uint64_t x) { return static_cast<uint32_t>(x >> 32); }
uint64_t Join(uint32_t low, uint32_t high) { return low | static_cast<uint64_t>(high) << 32; }

U32x2 Threefry(uint64_t counter, uint64_t key) {
  constexpr int kRotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  const uint32_t ks[3] = {Low(key), High(key), 0x1BD11BDA ^ Low(key) ^ High(key)};
  U32x2 x = {Low(counter) + ks[0], High(counter) + ks[1]};
  for (uint32_t group = 0; group < 5; ++group) {
    for (int rotation : kRotations[group % 2]) {
      x[0] += x[1];
      x[1] = (x[1] << rotation | x[1] >> (32 - rotation)) ^ x[0];
    }
    x[0] += ks[(group + 1) % 3];
    x[1] += ks[(group + 2) % 3] + group + 1;
  }
  return x;
}

U32x4 Philox(U32x4 x, uint64_t key) {
  uint32_t k0 = Low(key), k1 = High(key);
  for (int round = 0; round < 10; ++round) {
    uint64_t a = uint64_t{0xD2511F53} * x[0], b = uint64_t{0xCD9E8D57} * x[2];
    x = {High(b) ^ x[1] ^ k0, Low(b), High(a) ^ x[3] ^ k1, Low(a)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return x;
}

struct Counter128 {
  uint64_t low = 0, high = 0;
  Counter128 operator+(uint64_t n) const { return {low + n, high + (low + n < low)}; }
};

// 64-bit results take both words of a counter. Narrower ones split one dimension (the first even one, else the largest)
// into pairs: the two words of a counter are neighbours along it. Returns the number of counters used.
uint64_t FillThreefry(uint64_t key, uint64_t counter, Literal* out) {
  std::vector<int64_t> dims = out->shape().constant_dims();
  const int64_t n = out->num_elements();
  if (BitWidth(out->type()) == 64) {
    for (int64_t e = 0; e < n; ++e) {
      U32x2 x = Threefry(counter + e, key);
      out->SetFromInt64(e, static_cast<int64_t>(Join(x[0], x[1])));
    }
    return n;
  }
  if (dims.empty()) {
    out->SetFromInt64(0, Threefry(counter, key)[0]);
    return 1;
  }
  size_t split = 0;
  bool even = false;
  for (size_t d = 0; d < dims.size() && !even; ++d) {
    if (dims[d] % 2 == 0) {
      split = d;
      even = true;
    } else if (dims[d] > dims[split]) {
      split = d;
    }
  }
  std::vector<int64_t> half = dims;
  half[split] = (dims[split] + 1) / 2;
  Index half_strides = StridesOf(half);
  int64_t e = 0;
  ForEachIndex(dims, [&](const Index& index) {
    Index at = index;
    at[split] /= 2;
    U32x2 x = Threefry(counter + Offset(at, half_strides), key);
    out->SetFromInt64(e++, x[index[split] % 2]);
  });
  return Product(half);
}

uint64_t FillPhilox(uint64_t key, Counter128 counter, Literal* out) {
  const int per_block = BitWidth(out->type()) == 64 ? 2 : 4;
  const int64_t n = out->num_elements();
  for (int64_t e = 0; e < n; ++e) {
    Counter128 c = counter + e / per_block;
    U32x4 x = Philox({Low(c.low), High(c.low), Low(c.high), High(c.high)}, key);
    int k = e % per_block;
    out->SetFromInt64(e, per_block == 4 ? x[k]
                                        : static_cast<int64_t>(Join(x[2 * k], x[2 * k + 1])));
  }
  return (n + per_block - 1) / per_block;
}

// State u64: {key, counter} for Threefry, {key, counter low, counter high} for Philox (the high word may be absent).
// Other unsigned types hold the same bytes. The default algorithm is the one that fits the state.
absl::StatusOr<Literal> RngBitGenerator(Context&, const Instruction& i, Operands operands) {
  const std::string& algorithm = i.attrs().get<std::string>(Attr::kRngAlgorithm);
  Literal state = operands[0];
  const int64_t words = state.size_bytes() / 8;
  if (state.size_bytes() % 8 != 0 || words < 2) {
    return Invalid(i, absl::StrCat("state ", state.shape().ToString()));
  }
  auto* word = reinterpret_cast<uint64_t*>(state.mutable_bytes());
  // Bits go through an unsigned type of the result's width.
  const Shape& shape = i.shape().element(1);
  constexpr PrimitiveType kBits[] = {PrimitiveType::kU8, PrimitiveType::kU16, PrimitiveType::kU32,
                                     PrimitiveType::kU64};
  const int64_t width = ByteWidth(shape.element_type());
  if (IsComplex(shape.element_type())) return Unimplemented(i, "complex results");
  Literal bits(Shape(kBits[width == 1 ? 0 : width == 2 ? 1 : width == 4 ? 2 : 3], shape.dims()));
  if (algorithm == "rng_three_fry" || (algorithm == "rng_default" && words == 2)) {
    word[1] += FillThreefry(word[0], word[1], &bits);
  } else if (algorithm == "rng_philox" || algorithm == "rng_default") {
    Counter128 counter{word[1], words > 2 ? word[2] : 0};
    counter = counter + FillPhilox(word[0], counter, &bits);
    word[1] = counter.low;
    if (words > 2) word[2] = counter.high;
  } else {
    return Invalid(i, absl::StrCat("algorithm ", algorithm));
  }
  auto keep = std::make_shared<Literal>(bits);
  const std::byte* bytes = keep->bytes();
  if (BitWidth(shape.element_type()) < 8) {
    Literal narrow(shape);
    for (int64_t e = 0; e < bits.num_elements(); ++e) narrow.SetFromInt64(e, bits.GetAsInt64(e));
    return Literal::Tuple({std::move(state), std::move(narrow)});
  }
  return Literal::Tuple({std::move(state), Literal(shape, std::move(keep), bytes)});
}

// Any draw is right; this one depends on how much the run has drawn before.
absl::StatusOr<Literal> Rng(Context& context, const Instruction& i, Operands operands) {
  const bool normal = i.attrs().get<std::string>(Attr::kDistribution) == "rng_normal";
  Literal result(i.shape());
  const int64_t n = result.num_elements();
  Literal bits(Shape::Array(PrimitiveType::kU64, {2 * n}));
  context.rng_draws += FillPhilox(0x7012395, {context.rng_draws, 0}, &bits);
  auto uniform = [&](int64_t k) {
    return static_cast<double>(bits.data<uint64_t>()[k] >> 11) * 0x1p-53;
  };
  const double a = operands[0].GetAsDouble(0), b = operands[1].GetAsDouble(0);
  for (int64_t e = 0; e < n; ++e) {
    double u = uniform(2 * e), v = uniform(2 * e + 1);
    if (normal) {  // Box-Muller
      double radius = std::sqrt(-2 * std::log(1 - u));
      result.SetFromDouble(e, a + b * radius * std::cos(2 * std::numbers::pi * v));
    } else if (IsFloat(result.type())) {
      result.SetFromDouble(e, a + (b - a) * u);
      // Rounding may reach the excluded end.
      if (result.GetAsDouble(e) >= b && b > a) result.SetFromDouble(e, a);
    } else {
      result.SetFromInt64(e, static_cast<int64_t>(std::floor(a + (b - a) * u)));
    }
  }
  return result;
}

absl::StatusOr<Literal> RngGetAndUpdateState(Context& context, const Instruction& i, Operands) {
  Literal state(i.shape());
  if (state.size_bytes() != 16) return Invalid(i, "state other than u64[2]");
  auto* word = reinterpret_cast<uint64_t*>(state.mutable_bytes());
  word[0] = context.rng_state[0];
  word[1] = context.rng_state[1];
  Counter128 next = Counter128{word[0], word[1]} + i.attrs().get<int64_t>(Attr::kDelta);
  context.rng_state[0] = next.low;
  context.rng_state[1] = next.high;
  return state;
}

constexpr HandlerRow kRows[] = {
    {Opcode::kRng, Rng},
    {Opcode::kRngBitGenerator, RngBitGenerator},
    {Opcode::kRngGetAndUpdateState, RngGetAndUpdateState},
};

}  // namespace

absl::Span<const HandlerRow> RandomHandlers() { return kRows; }

}  // namespace tenon::eval
