// Counter-based generators: Threefry-2x32 (20 rounds) and Philox-4x32 (10 rounds), Salmon et al., "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011, with the counters and the order of results that XLA gives them.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "hlo/library/call.h"
#include "hlo/literal.h"

namespace tenon::library {
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
template <typename T>
uint64_t FillThreefry(uint64_t key, uint64_t counter, const std::vector<int64_t>& dims, T* out) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  if constexpr (sizeof(T) == 8) {
    for (int64_t e = 0; e < n; ++e) {
      const U32x2 x = Threefry(counter + static_cast<uint64_t>(e), key);
      out[e] = Join(x[0], x[1]);
    }
    return static_cast<uint64_t>(n);
  }
  if (dims.empty()) {
    out[0] = static_cast<T>(Threefry(counter, key)[0]);
    return 1;
  }
  size_t split = 0;
  bool even = false;
  for (size_t d = 0; d < dims.size() && !even; ++d) {
    even = dims[d] % 2 == 0;
    if (even || dims[d] > dims[split]) split = d;
  }
  // As [outer, the split dimension, inner].
  int64_t outer = 1, inner = 1;
  for (size_t d = 0; d < split; ++d) outer *= dims[d];
  for (size_t d = split + 1; d < dims.size(); ++d) inner *= dims[d];
  const int64_t size = dims[split], half = (size + 1) / 2;
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t h = 0; h < half; ++h) {
      T* first = out + (o * size + 2 * h) * inner;
      for (int64_t i = 0; i < inner; ++i) {
        const U32x2 x = Threefry(counter + static_cast<uint64_t>((o * half + h) * inner + i), key);
        first[i] = static_cast<T>(x[0]);
        if (2 * h + 1 < size) first[i + inner] = static_cast<T>(x[1]);
      }
    }
  }
  return static_cast<uint64_t>(outer * half * inner);
}

template <typename T>
uint64_t FillPhilox(uint64_t key, Counter128 counter, int64_t n, T* out) {
  constexpr int64_t kPerBlock = sizeof(T) == 8 ? 2 : 4;
  const int64_t blocks = (n + kPerBlock - 1) / kPerBlock;
  for (int64_t b = 0; b < blocks; ++b) {
    const Counter128 c = counter + static_cast<uint64_t>(b);
    const U32x4 x = Philox({Low(c.low), High(c.low), Low(c.high), High(c.high)}, key);
    for (int64_t k = 0; k < kPerBlock && b * kPerBlock + k < n; ++k) {
      out[b * kPerBlock + k] = kPerBlock == 4 ? static_cast<T>(x[k]) : static_cast<T>(Join(x[2 * k % 4], x[(2 * k + 1) % 4]));
    }
  }
  return static_cast<uint64_t>(blocks);
}

// f of a value of the unsigned type of that many bytes.
template <typename F>
void OfWidth(int64_t bytes, F&& f) {
  if (bytes == 1) f(uint8_t{});
  if (bytes == 2) f(uint16_t{});
  if (bytes == 4) f(uint32_t{});
  if (bytes == 8) f(uint64_t{});
}

// ---- rng-bit-generator ---------------------------------------------------------------------------------------------------
// State u64: {key, counter} for Threefry, {key, counter low, counter high} for Philox (the high word may be absent).
// Other integer types hold the same bytes. The default algorithm is the one that fits the state.

int64_t BytesOf(const Shape& s) { return s.num_elements_constant() * ByteWidth(s.element_type()); }

absl::Status CheckBits(const Signature& s) {
  const std::string* algorithm = s.attributes.String("algorithm");
  if (algorithm == nullptr ||
      (*algorithm != "rng_default" && *algorithm != "rng_three_fry" && *algorithm != "rng_philox")) {
    return Invalid(s, absl::StrCat("algorithm ", algorithm == nullptr ? "" : *algorithm));
  }
  if (s.operands.size() != 1 || s.results.size() != 2 || !Shape::Compatible(s.operands[0], s.results[0])) {
    return Invalid(s, "wanted a state, and that and bits as results");
  }
  const int64_t bytes = BytesOf(s.operands[0]);
  if (!IsIntegral(s.operands[0].element_type()) || bytes % 8 != 0 || bytes < 16) {
    return Invalid(s, absl::StrCat("state ", s.operands[0].ToString()));
  }
  const PrimitiveType type = s.results[1].element_type();
  if (IsComplex(type)) return absl::UnimplementedError(absl::StrCat(ToString(s), ": complex results"));
  if (!IsFloat(type) && !IsIntegral(type)) return Invalid(s, "bits as numbers");
  return absl::OkStatus();
}

absl::Status RunBits(const Call& call) {
  const std::string& algorithm = *call.signature.attributes.String("algorithm");
  const Shape &state = call.signature.operands[0], &bits = call.signature.results[1];
  uint64_t word[3] = {0, 0, 0};
  const int64_t bytes = BytesOf(state), words = std::min<int64_t>(bytes / 8, 3);
  std::memcpy(word, call.operands[0], words * 8);
  const bool threefry = algorithm == "rng_three_fry" || (algorithm == "rng_default" && bytes == 16);
  const std::vector<int64_t> dims = bits.constant_dims();
  const int64_t n = bits.num_elements_constant();
  OfWidth(ByteWidth(bits.element_type()), [&]<typename T>(T) {
    T* out = static_cast<T*>(call.results[1]);
    if (threefry) {
      word[1] += FillThreefry(word[0], word[1], dims, out);
    } else {
      const Counter128 first{word[1], word[2]};
      const Counter128 next = first + FillPhilox(word[0], first, n, out);
      word[1] = next.low;
      word[2] = next.high;
    }
  });
  if (BitWidth(bits.element_type()) < 8) {  // the number that the low bits are, not a byte of bits
    Literal narrow(Shape(bits.element_type(), bits.dims()));
    for (int64_t e = 0; e < n; ++e) narrow.SetFromInt64(e, static_cast<const uint8_t*>(call.results[1])[e]);
    std::memcpy(call.results[1], narrow.bytes(), n);
  }
  std::memcpy(call.results[0], call.operands[0], bytes);
  std::memcpy(call.results[0], word, words * 8);
  return absl::OkStatus();
}

// ---- rng -----------------------------------------------------------------------------------------------------------------
// Any draw is right; this one depends on how much the run has drawn before.

absl::Status CheckRng(const Signature& s) {
  const std::string* distribution = s.attributes.String("distribution");
  if (distribution == nullptr || (*distribution != "rng_uniform" && *distribution != "rng_normal")) {
    return Invalid(s, "wanted distribution rng_uniform or rng_normal");
  }
  bool fits = s.operands.size() == 2 && s.results.size() == 1;
  for (const Shape& operand : s.operands) {
    fits = fits && operand.rank() == 0 && operand.element_type() == s.results[0].element_type();
  }
  return fits ? absl::OkStatus() : Invalid(s, "wanted two scalars of the result's type");
}

int64_t RngScratch(const Signature& s) { return Scratch::Bytes<uint64_t>(2 * s.results[0].num_elements_constant()); }

absl::Status RunRng(const Call& call) {
  const Shape& shape = call.signature.results[0];
  const bool normal = *call.signature.attributes.String("distribution") == "rng_normal";
  Literal result(Shape::Array(shape.element_type(), shape.constant_dims()));
  const int64_t n = result.num_elements();
  Scratch scratch(call);
  uint64_t* bits = scratch.Take<uint64_t>(2 * n);
  call.state.rng_draws += FillPhilox(0x7012395, {call.state.rng_draws, 0}, 2 * n, bits);
  auto uniform = [&](int64_t k) { return static_cast<double>(bits[k] >> 11) * 0x1p-53; };
  const Shape scalar = Shape::Scalar(shape.element_type());
  const double a = Literal(scalar, nullptr, call.operands[0]).GetAsDouble(0);
  const double b = Literal(scalar, nullptr, call.operands[1]).GetAsDouble(0);
  for (int64_t e = 0; e < n; ++e) {
    const double u = uniform(2 * e), v = uniform(2 * e + 1);
    if (normal) {  // Box-Muller
      const double radius = std::sqrt(-2 * std::log(1 - u));
      result.SetFromDouble(e, a + b * radius * std::cos(2 * std::numbers::pi * v));
    } else if (IsFloat(result.type())) {
      result.SetFromDouble(e, a + (b - a) * u);
      // Rounding may reach the excluded end.
      if (result.GetAsDouble(e) >= b && b > a) result.SetFromDouble(e, a);
    } else {
      result.SetFromInt64(e, static_cast<int64_t>(std::floor(a + (b - a) * u)));
    }
  }
  if (n > 0) std::memcpy(call.results[0], result.bytes(), result.size_bytes());
  return absl::OkStatus();
}

// ---- rng-get-and-update-state --------------------------------------------------------------------------------------------

absl::Status CheckState(const Signature& s) {
  if (s.attributes.Int("delta") == nullptr) return Invalid(s, "wanted delta");
  const bool fits = s.operands.empty() && s.results.size() == 1 && BytesOf(s.results[0]) == 16;
  return fits ? absl::OkStatus() : Invalid(s, "state other than u64[2]");
}

absl::Status RunGetAndUpdate(const Call& call) {
  uint64_t* state = call.state.rng_state;
  std::memcpy(call.results[0], state, 16);
  const Counter128 next = Counter128{state[0], state[1]} + static_cast<uint64_t>(*call.signature.attributes.Int("delta"));
  state[0] = next.low;
  state[1] = next.high;
  return absl::OkStatus();
}

constexpr Function kFunctions[] = {{"rng", CheckRng, RngScratch, RunRng},
                                   {"rng-bit-generator", CheckBits, nullptr, RunBits},
                                   {"rng-get-and-update-state", CheckState, nullptr, RunGetAndUpdate}};

}  // namespace

absl::Span<const Function> RandomFunctions() { return kFunctions; }

}  // namespace tenon::library
