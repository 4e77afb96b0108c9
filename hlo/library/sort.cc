// Sorting, selecting and looking up along one dimension, by keys as unsigned numbers (sort_order.h). Every result is the only one
// that its rules allow (ties go by position), so neither the algorithm nor the number of threads can be seen in it.
//
//   sort          stable. Rows of more than kShort elements by a radix sort from the least significant bits, what is the same throughout
//                 left out; one long row is counted and dealt out by all threads, shorter rows are shared out whole.
//   topk          the k first of each row. Of a row much longer than k, the best of each block is found, in vectors and by all threads if
//                 the row is long; then only blocks are looked at whose best is no worse than the k-th best of the blocks' best, and at
//                 no more than k elements equal to it. So work is one read of the row, whatever stands in it. Of a row not much longer,
//                 the k-th is found bit by bit, by counting; what comes before it is sorted, if it is asked for.
//   searchsorted  binary search, step by step as aten/src/ATen/native/Bucketization.cpp (so NaN ends where ATen's does).
#include <atomic>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hlo/library/call.h"
#include "hlo/library/sort_order.h"
#include "hlo/numeric_types.h"

namespace tenon::library {
namespace {

using PT = PrimitiveType;

constexpr int64_t kShort = 128;        // elements that are sorted by comparisons
constexpr int64_t kLong = 128 << 10;   // elements of one row that all threads share
constexpr int64_t kPiece = 32 << 10;   // elements that are worth a thread
constexpr int64_t kFew = 8 << 10;      // elements in all that are not worth a second thread
constexpr int64_t kMostPieces = 64;
constexpr int kBins = 256;
constexpr int kByte = 8, kWideDigit = 11;    // bits that a row is sorted by at once: bins of the larger lie in the first cache still
constexpr int kCounted = 64;                  // codes that are counted at once
constexpr int64_t kPiecesToSort = 4;          // as many threads sort a row sooner than one finds its k-th element
constexpr int64_t kManyBins = 2048;           // elements from which on as many bins are worth it
constexpr int64_t kMostBytes = 32 << 20;  // of scratch for several rows at once
constexpr int64_t kMostElements = (int64_t{1} << 31) - 1;

// A key with its position; equal keys are in order of their positions.
struct Item32 {
  static Item32 Make(uint32_t code, uint32_t at) { return {uint64_t{code} << 32 | at}; }
  uint32_t code() const { return static_cast<uint32_t>(both >> 32); }
  uint32_t at() const { return static_cast<uint32_t>(both); }
  bool operator<(const Item32& o) const { return both < o.both; }
  uint64_t both;
};
struct Item64 {
  static Item64 Make(uint64_t code, uint32_t at) { return {code, at}; }
  uint64_t code() const { return key; }
  uint32_t at() const { return static_cast<uint32_t>(position); }
  bool operator<(const Item64& o) const { return key != o.key ? key < o.key : position < o.position; }
  uint64_t key, position;
};
template <typename U>
using ItemOf = std::conditional_t<sizeof(U) == 8, Item64, Item32>;
template <typename U>
using CodeFor = std::conditional_t<sizeof(U) == 8, uint64_t, uint32_t>;

inline uint64_t CodeIn(uint32_t code) { return code; }
inline uint64_t CodeIn(uint64_t code) { return code; }
inline uint64_t CodeIn(const Item32& i) { return i.code(); }
inline uint64_t CodeIn(const Item64& i) { return i.code(); }

// f(U{}, std::integral_constant<KeyKind, kind>{}) for a key type.
template <typename F>
void DispatchKey(PT type, F&& f) {
  using Unsigned = std::integral_constant<KeyKind, KeyKind::kUnsigned>;
  using Signed = std::integral_constant<KeyKind, KeyKind::kSigned>;
  using Float = std::integral_constant<KeyKind, KeyKind::kFloat>;
  switch (type) {
    case PT::kPred:
    case PT::kU8: return f(uint8_t{}, Unsigned{});
    case PT::kU16: return f(uint16_t{}, Unsigned{});
    case PT::kU32: return f(uint32_t{}, Unsigned{});
    case PT::kU64: return f(uint64_t{}, Unsigned{});
    case PT::kS8: return f(uint8_t{}, Signed{});
    case PT::kS16: return f(uint16_t{}, Signed{});
    case PT::kS32: return f(uint32_t{}, Signed{});
    case PT::kS64: return f(uint64_t{}, Signed{});
    case PT::kF16:
    case PT::kBF16: return f(uint16_t{}, Float{});
    case PT::kF32: return f(uint32_t{}, Float{});
    case PT::kF64: return f(uint64_t{}, Float{});
    default: TENON_CHECK(false, "no key type");
  }
}

// Stable, by the bits from `low` on, `bits` of them, of which others are the same throughout. One thread. Returns where the sorted row
// lies: `from` or `to`.
template <typename T>
T* SortDigits(T* from, T* to, int64_t n, int low, int bits) {
  const int most = n < kManyBins ? kByte : kWideDigit, digits = (bits + most - 1) / most, width = (bits + digits - 1) / digits;
  const uint64_t mask = (uint64_t{1} << width) - 1;
  auto digit_of = [&](const T& x, int digit) { return CodeIn(x) >> (low + digit * width) & mask; };
  std::vector<uint32_t> counts(static_cast<size_t>(digits) << width);  // all digits are counted at once: they stay whatever the order
  for (int64_t i = 0; i < n; ++i) {
    for (int d = 0; d < digits; ++d) ++counts[(static_cast<size_t>(d) << width) + digit_of(from[i], d)];
  }
  for (int d = 0; d < digits; ++d) {
    uint32_t* next = counts.data() + (static_cast<size_t>(d) << width);
    uint32_t start = 0;
    for (uint64_t bin = 0; bin <= mask; ++bin) start += std::exchange(next[bin], start);
    for (int64_t i = 0; i < n; ++i) to[next[digit_of(from[i], d)]++] = from[i];
    std::swap(from, to);
  }
  return from;
}

// The same by the lowest `bytes` bytes, by all threads: each counts and deals out a piece. `counts`: kBins for each piece.
template <typename T>
T* SortBytes(T* from, T* to, int64_t n, int bytes, uint32_t* counts, const Parallel& parallel, int64_t pieces) {
  auto first = [&](int64_t piece) { return n * piece / pieces; };
  auto bin_of = [](const T& x, int byte) { return CodeIn(x) >> (8 * byte) & (kBins - 1); };
  for (int byte = 0; byte < bytes; ++byte) {
    parallel.For(pieces, [&](int64_t p) {
      uint32_t* count = counts + p * kBins;
      std::fill_n(count, kBins, 0);
      for (int64_t i = first(p); i < first(p + 1); ++i) ++count[bin_of(from[i], byte)];
    });
    uint32_t start = 0;
    bool constant = false;
    for (int bin = 0; bin < kBins; ++bin) {
      const uint32_t before = start;
      for (int64_t p = 0; p < pieces; ++p) start += std::exchange(counts[p * kBins + bin], start);
      constant = constant || start - before == static_cast<uint32_t>(n);
    }
    if (constant) continue;
    parallel.For(pieces, [&](int64_t p) {
      uint32_t* next = counts + p * kBins;
      for (int64_t i = first(p); i < first(p + 1); ++i) to[next[bin_of(from[i], byte)]++] = from[i];
    });
    std::swap(from, to);
  }
  return from;
}

template <typename T>
T* RadixSort(T* from, T* to, int64_t n, int bytes, uint32_t* counts, const Parallel& parallel, int64_t pieces) {
  if (pieces > 1) return SortBytes(from, to, n, bytes, counts, parallel, pieces);
  uint64_t unlike = 0;
  for (int64_t i = 1; i < n; ++i) unlike |= CodeIn(from[i]) ^ CodeIn(from[0]);
  if (unlike == 0) return from;
  const int low = std::countr_zero(unlike);
  return SortDigits(from, to, n, low, std::bit_width(unlike) - low);
}

template <typename T>
T* SortAll(T* from, T* to, int64_t n, int bytes, uint32_t* counts, const Parallel& parallel, int64_t pieces) {
  if (n > kShort) return RadixSort(from, to, n, bytes, counts, parallel, pieces);
  std::sort(from, from + n);
  return from;
}

// One row of an array: `n` elements, `stride` apart.
struct Row {
  int64_t start, n, stride;
};
struct Rows {
  Rows(const Shape& s, int64_t dimension) : n(s.constant_dim(dimension)) {
    for (int64_t d = 0; d < s.rank(); ++d) {
      if (d > dimension) inner *= s.constant_dim(d);
      if (d < dimension) outer *= s.constant_dim(d);
    }
  }
  int64_t count() const { return n == 0 ? 0 : outer * inner; }
  Row operator[](int64_t k) const { return {k / inner * n * inner + k % inner, n, inner}; }
  int64_t n, inner = 1, outer = 1;
};

// Rows are shared out in this many shares, each with scratch of its own.
int64_t Shares(int64_t rows, int64_t n, int64_t row_bytes) {
  if (n >= kLong) return 1;
  return std::clamp<int64_t>(kMostBytes / std::max<int64_t>(row_bytes, 1), 1, std::clamp<int64_t>(rows, 1, kMostPieces));
}

// body(share, row, parallel) for each row, rows of a share one after the other; `parallel` is what the row may use itself. Little work
// stays on the caller's thread.
template <typename Body>
void ForRows(const Parallel& parallel, int64_t rows, int64_t n, int64_t shares, const Body& body) {
  const Parallel alone;
  const bool whole = n >= kLong;
  (whole || rows * n < kFew ? alone : parallel).For(shares, [&](int64_t s) {
    for (int64_t k = rows * s / shares; k < rows * (s + 1) / shares; ++k) body(s, k, whole ? parallel : alone);
  });
}

// ---- sort ------------------------------------------------------------------------------------------------------------------
// Results are columns that move together: those whose bit of `positions` is set hold where an element stood, the others are the
// operands in turn, without the one that decides (`key`) if `hidden_key` is 1.

int64_t AttributeOr(const Signature& s, std::string_view name) { return s.attributes.IntOr(name, 0); }
SortOrder OrderOf(const Signature& s) {
  return {AttributeOr(s, "descending") != 0, AttributeOr(s, "total") != 0, AttributeOr(s, "nan_first") != 0};
}
// The operand that stands behind operand `o` in the results; from -1, the first.
size_t NextShown(const Signature& s, size_t o) {
  ++o;
  return AttributeOr(s, "hidden_key") != 0 && static_cast<int64_t>(o) == AttributeOr(s, "key") ? o + 1 : o;
}
bool IsPosition(const Signature& s, size_t column) { return (AttributeOr(s, "positions") >> column & 1) != 0; }
bool IsPositionType(PT type) { return type == PT::kS32 || type == PT::kS64 || type == PT::kU32 || type == PT::kU64; }

absl::Status CheckSort(const Signature& s) {
  const int64_t positions = AttributeOr(s, "positions"), key = AttributeOr(s, "key"), dimension = AttributeOr(s, "dimension");
  if (s.operands.empty() || s.results.empty() || s.results.size() > 48 || positions < 0 || positions >> s.results.size() != 0)
    return Invalid(s, "wanted an operand, 1 to 48 results and positions among them");
  if (key < 0 || key >= static_cast<int64_t>(s.operands.size())) return Invalid(s, "wanted a key among the operands");
  const Shape& x = s.operands[static_cast<size_t>(key)];
  if (dimension < 0 || dimension >= x.rank() || LowerBound(x.dim(dimension)) > kMostElements)
    return Invalid(s, "wanted a dimension of at most 2^31 - 1 elements");
  if (!IsSortKey(x.element_type())) return Invalid(s, "wanted a key of integers or floats of 16 bits and more");
  size_t operand = NextShown(s, static_cast<size_t>(-1));
  for (size_t c = 0; c < s.results.size(); ++c) {
    if (!Shape::SameDims(s.results[c], x)) return Invalid(s, "wanted arrays of the same sizes");
    if (IsPosition(s, c)) {
      if (!IsPositionType(s.results[c].element_type())) return Invalid(s, "wanted positions in integers of 32 or 64 bits");
      continue;
    }
    if (operand >= s.operands.size() || !Shape::Compatible(s.operands[operand], s.results[c]))
      return Invalid(s, "wanted a result for each operand");
    operand = NextShown(s, operand);
  }
  return operand == s.operands.size() ? absl::OkStatus() : Invalid(s, "wanted a result for each operand");
}

int64_t CountBytes(int64_t n) { return n < kLong ? 0 : kBins * kMostPieces * static_cast<int64_t>(sizeof(uint32_t)); }
// Two rows of items, and counts.
int64_t RowBytes(int64_t n, PT key) { return 2 * Scratch::Bytes<char>(n * (ByteWidth(key) == 8 ? 16 : 8)) + CountBytes(n); }

int64_t SortScratch(const Signature& s) {
  const Shape& x = s.operands[static_cast<size_t>(AttributeOr(s, "key"))];
  const Rows rows(x, AttributeOr(s, "dimension"));
  const int64_t bytes = RowBytes(rows.n, x.element_type());
  return Shares(rows.count(), rows.n, bytes) * bytes;
}

template <typename T>
void Take(const void* from, void* to, const Row& row, const auto& at, int64_t begin, int64_t end) {
  const T* in = static_cast<const T*>(from) + row.start;
  T* out = static_cast<T*>(to) + row.start;
  for (int64_t i = begin; i < end; ++i) out[i * row.stride] = in[int64_t{at(i)} * row.stride];
}
struct Sixteen {
  uint64_t a, b;
};

template <typename U, KeyKind kKind>
class Sorter {
  using Item = ItemOf<U>;
  using Code = CodeFor<U>;

 public:
  Sorter(const Call& call, const Rows& rows)
      : call_(call),
        rows_(rows),
        key_(static_cast<size_t>(AttributeOr(call.signature, "key"))),
        order_(OrderOf(call.signature)),
        infinity_(static_cast<U>(InfinityBits(call.signature.operands[key_].element_type()))),
        row_bytes_(RowBytes(rows.n, call.signature.operands[key_].element_type())) {
    size_t operand = NextShown(call.signature, static_cast<size_t>(-1));
    for (size_t c = 0; c < call.signature.results.size(); ++c) {
      const bool position = IsPosition(call.signature, c);
      columns_.push_back(position ? kPositions : static_cast<int>(operand));
      if (!position) operand = NextShown(call.signature, operand);
    }
  }

  void Run() const {
    const int64_t shares = Shares(rows_.count(), rows_.n, row_bytes_);
    ForRows(call_.parallel, rows_.count(), rows_.n, shares, [&](int64_t share, int64_t k, const Parallel& parallel) {
      SortRow(rows_[k], call_.scratch + share * row_bytes_, parallel);
    });
  }

 private:
  static constexpr int kPositions = -1;

  void SortRow(const Row& row, char* scratch, const Parallel& parallel) const {
    const int64_t n = row.n, pieces = std::clamp<int64_t>(n / kPiece, 1, std::min<int64_t>(parallel.threads, kMostPieces));
    char* other = scratch + (row_bytes_ - CountBytes(n)) / 2;
    uint32_t* counts = reinterpret_cast<uint32_t*>(scratch + row_bytes_ - CountBytes(n));
    const U* keys = static_cast<const U*>(call_.operands[key_]) + row.start;
    const bool lost = AnyLost(keys, row, parallel);
    if (columns_ == std::vector<int>{static_cast<int>(key_)} && !lost) {  // the codes say all
      Code *from = reinterpret_cast<Code*>(scratch), *to = reinterpret_cast<Code*>(other);
      parallel.Pieces(n, kPiece, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) from[i] = CodeOf<kKind, U>(keys[i * row.stride], infinity_, order_);
      });
      const Code* sorted = SortAll(from, to, n, sizeof(U), counts, parallel, pieces);
      Decode(sorted, 0, row, parallel);
      return;
    }
    Item *from = reinterpret_cast<Item*>(scratch), *to = reinterpret_cast<Item*>(other);
    parallel.Pieces(n, kPiece, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        from[i] = Item::Make(CodeOf<kKind, U>(keys[i * row.stride], infinity_, order_), static_cast<uint32_t>(i));
    });
    const Item* sorted = SortAll(from, to, n, sizeof(U), counts, parallel, pieces);
    for (size_t c = 0; c < columns_.size(); ++c) {
      if (columns_[c] == static_cast<int>(key_) && !lost) Decode(sorted, c, row, parallel);
      else Move(sorted, c, row, parallel);
    }
  }

  bool AnyLost(const U* keys, const Row& row, const Parallel& parallel) const {
    if (kKind != KeyKind::kFloat || order_.total) return false;
    std::atomic<bool> any = false;
    parallel.Pieces(row.n, kPiece, [&](int64_t begin, int64_t end) {
      bool lost = false;
      for (int64_t i = begin; i < end; ++i) lost |= IsLost<kKind, U>(keys[i * row.stride], infinity_, order_);
      if (lost) any.store(true, std::memory_order_relaxed);
    });
    return any;
  }

  template <typename T>
  void Decode(const T* sorted, size_t column, const Row& row, const Parallel& parallel) const {
    U* out = static_cast<U*>(call_.results[column]) + row.start;
    parallel.Pieces(row.n, kPiece, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out[i * row.stride] = BitsOf<kKind, U>(static_cast<U>(CodeIn(sorted[i])), order_);
    });
  }

  void Move(const Item* sorted, size_t column, const Row& row, const Parallel& parallel) const {
    const int64_t width = ByteWidth(call_.signature.results[column].element_type());
    void* to = call_.results[column];
    parallel.Pieces(row.n, kPiece, [&](int64_t begin, int64_t end) {
      if (columns_[column] == kPositions) {
        for (int64_t i = begin; i < end; ++i) {
          if (width == 8) static_cast<uint64_t*>(to)[row.start + i * row.stride] = sorted[i].at();
          else static_cast<uint32_t*>(to)[row.start + i * row.stride] = sorted[i].at();
        }
        return;
      }
      const void* from = call_.operands[static_cast<size_t>(columns_[column])];
      auto at = [&](int64_t i) { return sorted[i].at(); };
      switch (width) {
        case 1: return Take<uint8_t>(from, to, row, at, begin, end);
        case 2: return Take<uint16_t>(from, to, row, at, begin, end);
        case 4: return Take<uint32_t>(from, to, row, at, begin, end);
        case 8: return Take<uint64_t>(from, to, row, at, begin, end);
        case 16: return Take<Sixteen>(from, to, row, at, begin, end);
        default: TENON_CHECK(false, "no element of this width");
      }
    });
  }

  const Call& call_;
  const Rows& rows_;
  const size_t key_;
  const SortOrder order_;
  const U infinity_;
  const int64_t row_bytes_;
  std::vector<int> columns_;  // the operand of each result, or kPositions
};

absl::Status RunSort(const Call& call) {
  const Signature& s = call.signature;
  const Shape& x = s.operands[static_cast<size_t>(AttributeOr(s, "key"))];
  const Rows rows(x, AttributeOr(s, "dimension"));
  DispatchKey(x.element_type(), [&]<typename U, KeyKind kKind>(U, std::integral_constant<KeyKind, kKind>) {
    Sorter<U, kKind>(call, rows).Run();
  });
  return absl::OkStatus();
}

// ---- topk ------------------------------------------------------------------------------------------------------------------
// (x) -> (values, positions in s32 or s64) of the k first along the last dimension, in order; the first `skip` of them are not given.

absl::Status CheckTopK(const Signature& s) {
  if (s.operands.size() != 1 || s.results.size() != 2) return Invalid(s, "wanted an array and two");
  const Shape &x = s.operands[0], &values = s.results[0];
  if (x.rank() == 0 || values.rank() != x.rank() || !Shape::SameDims(values, s.results[1]) || x.element_type() != values.element_type())
    return Invalid(s, "wanted values like the operand's, and positions of the same sizes");
  for (int64_t d = 0; d + 1 < x.rank(); ++d) {
    if (!KnownEqual(x.dim(d), values.dim(d))) return Invalid(s, "wanted values in as many rows");
  }
  const Dim n = x.dim(x.rank() - 1);
  const int64_t skip = AttributeOr(s, "skip");
  if (skip < 0 || skip > kMostElements || Less(n, values.dim(x.rank() - 1) + skip) != Ternary::kNo || LowerBound(n) > kMostElements)
    return Invalid(s, "wanted at most as many as there are, 2^31 - 1");
  if (!IsSortKey(x.element_type())) return Invalid(s, "wanted integers or floats of 16 bits and more");
  const PT at = s.results[1].element_type();
  return at == PT::kS32 || at == PT::kS64 ? absl::OkStatus() : Invalid(s, "wanted positions in s32 or s64");
}

int64_t CountOf(const Signature& s) { return s.results[0].constant_dim(s.results[0].rank() - 1); }

int64_t TopKScratch(const Signature& s) {
  const Shape& x = s.operands[0];
  const Rows rows(x, x.rank() - 1);
  const int64_t bytes = RowBytes(rows.n, x.element_type());
  return Shares(rows.count(), rows.n, bytes) * bytes;
}

// The best code of each of `blocks` blocks.
template <int kBlock, KeyKind kKind, bool kLargest, typename U, typename Code>
[[gnu::always_inline]] inline void BestOfBlocks(const U* x, int64_t blocks, U infinity, Code* best) {
  constexpr SortOrder kOrder{.descending = kLargest, .nan_first = kLargest};
  for (int64_t b = 0; b < blocks; ++b) {
    const U* block = x + b * kBlock;
    U first = static_cast<U>(~U{0});
    for (int i = 0; i < kBlock; ++i) first = std::min(first, CodeOf<kKind, U>(block[i], infinity, kOrder));
    best[b] = first;
  }
}
#if defined(__x86_64__)
// The same for machines with AVX2: SSE2 has no minimum of most integers.
template <int kBlock, KeyKind kKind, bool kLargest, typename U, typename Code>
[[gnu::target("avx2")]] void BestOfBlocksAvx2(const U* x, int64_t blocks, U infinity, Code* best) {
  BestOfBlocks<kBlock, kKind, kLargest>(x, blocks, infinity, best);
}
#endif

// The k-th code of a row, and how many are below it.
template <typename Code>
struct Kth {
  Code code;
  int64_t below;
};

// How many of `codes`, a whole number of blocks, are below `bound`.
template <typename Code>
[[gnu::always_inline]] inline int64_t CountBelow(const Code* codes, int64_t n, Code bound) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; i += kCounted) {
    Code here = 0;
    for (int j = 0; j < kCounted; ++j) here += static_cast<Code>(codes[i + j] < bound);
    count += static_cast<int64_t>(here);
  }
  return count;
}

// The k-th (from 1) of n >= kCounted elements, by the bits of its code from the highest: how many codes are below with the next bit set
// says whether it is. Codes that began otherwise are left out after every byte; few are ranked by comparisons. `codes`: room for 2 n.
template <KeyKind kKind, bool kLargest, typename U, typename Code>
[[gnu::always_inline]] inline Kth<Code> KthOf(const U* x, int64_t n, int64_t k, U infinity, Code* codes) {
  constexpr SortOrder kOrder{.descending = kLargest, .nan_first = kLargest};
  const int64_t whole = n / kCounted * kCounted;
  for (int64_t i = 0; i < whole; i += kCounted) {
    for (int j = 0; j < kCounted; ++j) codes[i + j] = CodeOf<kKind, U>(x[i + j], infinity, kOrder);
  }
  for (int64_t i = whole; i < n; ++i) codes[i] = CodeOf<kKind, U>(x[i], infinity, kOrder);
  Code found = 0;
  int64_t below = 0;
  for (int bit = 8 * static_cast<int>(sizeof(U)); n > kCounted && bit > 0;) {
    const int64_t padded = (n + kCounted - 1) / kCounted * kCounted;
    std::fill(codes + n, codes + padded, static_cast<Code>(~Code{0}));  // below nothing
    for (int byte = 0; byte < kByte; ++byte) {
      const Code with = found | Code{1} << --bit;
      found = below + CountBelow(codes, padded, with) < k ? with : found;
    }
    int64_t left = 0;
    for (int64_t i = 0; i < n; ++i) {
      const Code code = codes[i];
      codes[left] = code;
      left += (code ^ found) >> bit == 0 ? 1 : 0;
      below += code < found ? 1 : 0;
    }
    n = left;
  }
  if (n > kCounted) return {found, below};  // all bits are known: that many are equal
  std::nth_element(codes, codes + (k - below - 1), codes + n);
  found = codes[k - below - 1];
  for (int64_t i = 0; i < n; ++i) below += codes[i] < found ? 1 : 0;
  return {found, below};
}
#if defined(__x86_64__)
template <KeyKind kKind, bool kLargest, typename U, typename Code>
[[gnu::target("avx2")]] Kth<Code> KthOfAvx2(const U* x, int64_t n, int64_t k, U infinity, Code* codes) {
  return KthOf<kKind, kLargest>(x, n, k, infinity, codes);
}
#endif

template <typename U, KeyKind kKind, bool kLargest>
class Selector {
  using Item = ItemOf<U>;
  using Code = CodeFor<U>;

 public:
  Selector(const Call& call, const Rows& rows)
      : call_(call), rows_(rows), skip_(AttributeOr(call.signature, "skip")), k_(skip_ + CountOf(call.signature)) {
    const PT type = call.signature.operands[0].element_type();
    infinity_ = static_cast<U>(InfinityBits(type));
    row_bytes_ = RowBytes(rows.n, type);
  }

  void Run() const {
    if (k_ == skip_) return;
    const int64_t shares = Shares(rows_.count(), rows_.n, row_bytes_);
    ForRows(call_.parallel, rows_.count(), rows_.n, shares, [&](int64_t share, int64_t row, const Parallel& parallel) {
      SelectRow(static_cast<const U*>(call_.operands[0]) + row * rows_.n, row, call_.scratch + share * row_bytes_, parallel);
    });
  }

 private:
  static constexpr SortOrder kOrder{.descending = kLargest, .nan_first = kLargest};

  Code CodeAt(const U* x, int64_t i) const { return CodeOf<kKind, U>(x[i], infinity_, kOrder); }

  void SelectRow(const U* x, int64_t row, char* scratch, const Parallel& parallel) const {
    const int64_t n = rows_.n;
    char* other = scratch + (row_bytes_ - CountBytes(n)) / 2;
    Item* items = reinterpret_cast<Item*>(scratch);
    const Item* sorted = items;
    uint32_t* counts = reinterpret_cast<uint32_t*>(scratch + row_bytes_ - CountBytes(n));
    const int64_t pieces = std::clamp<int64_t>(n / kPiece, 1, std::min<int64_t>(parallel.threads, kMostPieces));
    if (n / 16 >= 4 * k_) {
      const int64_t m = n / 64 >= 4 * k_ ? Candidates<64>(x, items, other, parallel) : Candidates<16>(x, items, other, parallel);
      if (m > k_) std::nth_element(items, items + k_, items + m);
      std::sort(items, items + k_);
    } else if (k_ <= kFew) {
      Fewest(x, items);
    } else if (n >= kCounted && pieces <= kPiecesToSort && (k_ <= n / 2 || k_ == skip_ + 1)) {
      const Kth<Code> kth = FindKth(x, reinterpret_cast<Code*>(other));
      if (k_ == skip_ + 1) return Put(x, row, 0, PositionOf(x, kth));
      Keep(x, kth, items);
      sorted = SortAll(items, reinterpret_cast<Item*>(other), k_, sizeof(U), counts, {}, 1);
    } else {
      parallel.Pieces(n, kPiece, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) items[i] = Item::Make(CodeAt(x, i), static_cast<uint32_t>(i));
      });
      sorted = SortAll(items, reinterpret_cast<Item*>(other), n, sizeof(U), counts, parallel, pieces);
    }
    for (int64_t i = skip_; i < k_; ++i) Put(x, row, i - skip_, sorted[i].at());
  }

  // The row's result `i` is element `at`.
  void Put(const U* x, int64_t row, int64_t i, int64_t at) const {
    const int64_t to = row * (k_ - skip_) + i;
    static_cast<U*>(call_.results[0])[to] = x[at];
    if (call_.signature.results[1].element_type() == PT::kS64) static_cast<int64_t*>(call_.results[1])[to] = at;
    else static_cast<int32_t*>(call_.results[1])[to] = static_cast<int32_t>(at);
  }

  Kth<Code> FindKth(const U* x, Code* codes) const {
#if defined(__x86_64__)
    static const bool kAvx2 = __builtin_cpu_supports("avx2");
    if (kAvx2) return KthOfAvx2<kKind, kLargest>(x, rows_.n, k_, infinity_, codes);
#endif
    return KthOf<kKind, kLargest>(x, rows_.n, k_, infinity_, codes);
  }

  int64_t PositionOf(const U* x, const Kth<Code>& kth) const {
    int64_t left = k_ - kth.below, at = -1;  // which of those that are equal
    while (left > 0) left -= CodeAt(x, ++at) == kth.code ? 1 : 0;
    return at;
  }

  // The k first, as they stand: what is below the k-th code, and of what is equal to it as many as are needed.
  void Keep(const U* x, const Kth<Code>& kth, Item* to) const {
    int64_t m = 0, left = k_ - kth.below;
    for (int64_t i = 0; i < rows_.n; ++i) {
      const Code code = CodeAt(x, i);
      const bool equal = code == kth.code && left > 0;
      to[m] = Item::Make(code, static_cast<uint32_t>(i));
      m += code < kth.code || equal ? 1 : 0;
      left -= equal ? 1 : 0;
    }
  }

  static constexpr int64_t kFew = 8;

  // The k first of a short row, in order: each element goes to its place among those that are the first so far, if it has one.
  void Fewest(const U* x, Item* kept) const {
    for (int64_t i = 0; i < rows_.n; ++i) {
      const Item item = Item::Make(CodeAt(x, i), static_cast<uint32_t>(i));
      int64_t place = std::min(i, k_);
      if (place == k_ && !(item < kept[--place])) continue;
      for (; place > 0 && item < kept[place - 1]; --place) kept[place] = kept[place - 1];
      kept[place] = item;
    }
  }

  template <int kBlock>
  void Best(const U* x, int64_t blocks, Code* best) const {
#if defined(__x86_64__)
    static const bool kAvx2 = __builtin_cpu_supports("avx2");
    if (kAvx2) return BestOfBlocksAvx2<kBlock, kKind, kLargest>(x, blocks, infinity_, best);
#endif
    BestOfBlocks<kBlock, kKind, kLargest>(x, blocks, infinity_, best);
  }

  // The elements that may be among the k first, of which there are at least k: k blocks hold one each that is as good as `bound`.
  // Fewer than k blocks hold a better one, so no order of the row makes this many.
  template <int kBlock>
  int64_t Candidates(const U* x, Item* items, char* scratch, const Parallel& parallel) const {
    const int64_t n = rows_.n, whole = n / kBlock;
    const int64_t pieces = std::clamp<int64_t>(n / kPiece, 1, std::min<int64_t>(parallel.threads, kMostPieces));
    auto first = [&](int64_t piece) { return whole * piece / pieces; };
    Code* best = reinterpret_cast<Code*>(scratch);
    Code* ranked = best + whole;
    parallel.For(pieces, [&](int64_t p) {
      Best<kBlock>(x + first(p) * kBlock, first(p + 1) - first(p), best + first(p));
      std::copy(best + first(p), best + first(p + 1), ranked + first(p));
    });
    std::nth_element(ranked, ranked + k_ - 1, ranked + whole);
    const Code bound = ranked[k_ - 1];
    int64_t found[kMostPieces];
    parallel.For(pieces, [&](int64_t p) {
      const int64_t end = p + 1 == pieces ? n : first(p + 1) * kBlock;
      found[p] = Look<kBlock>(x, first(p) * kBlock, end, best, bound, items + first(p) * kBlock);
    });
    int64_t m = found[0];
    for (int64_t p = 1; p < pieces; m += found[p++]) std::copy_n(items + first(p) * kBlock, found[p], items + m);
    return m;
  }

  // Those of [begin, end) that are better than `bound`, and of those equal to it the k first (and what stands in their block).
  template <int kBlock>
  int64_t Look(const U* x, int64_t begin, int64_t end, const Code* best, Code bound, Item* to) const {
    const int64_t whole = rows_.n / kBlock;
    int64_t m = 0, equal = 0;
    for (int64_t at = begin; at < end; at += kBlock) {
      const int64_t b = at / kBlock;
      if (b < whole && (best[b] > bound || (equal >= k_ && best[b] == bound))) continue;
      for (int64_t i = at; i < std::min(at + kBlock, end); ++i) {
        const Code code = CodeAt(x, i);
        to[m] = Item::Make(code, static_cast<uint32_t>(i));
        m += code <= bound ? 1 : 0;
        equal += code == bound ? 1 : 0;
      }
    }
    return m;
  }

  const Call& call_;
  const Rows& rows_;
  const int64_t skip_, k_;
  U infinity_;
  int64_t row_bytes_;
};

absl::Status RunTopK(const Call& call) {
  const Shape& x = call.signature.operands[0];
  const Rows rows(x, x.rank() - 1);
  DispatchKey(x.element_type(), [&]<typename U, KeyKind kKind>(U, std::integral_constant<KeyKind, kKind>) {
    if (AttributeOr(call.signature, "largest") != 0) Selector<U, kKind, true>(call, rows).Run();
    else Selector<U, kKind, false>(call, rows).Run();
  });
  return absl::OkStatus();
}

// ---- searchsorted ----------------------------------------------------------------------------------------------------------
// (sorted, values[, sorter in s64]) -> positions in s32 or s64. Rows of `sorted` along its last dimension: one for all values, or as
// many as `values` has. sorter: where the k-th element of the sorted row stands.

bool IsSearchType(PT type) { return type == PT::kF32 || type == PT::kF64 || (IsSortKey(type) && !IsFloat(type)); }

absl::Status CheckSearch(const Signature& s) {
  if (s.operands.size() < 2 || s.operands.size() > 3 || s.results.size() != 1) return Invalid(s, "wanted two or three arrays and one");
  const Shape &sorted = s.operands[0], &values = s.operands[1], &result = s.results[0];
  const PT at = result.element_type();
  if (!IsSearchType(sorted.element_type()) || sorted.element_type() != values.element_type() || (at != PT::kS32 && at != PT::kS64))
    return Invalid(s, "wanted integers, f32 or f64, and positions in s32 or s64");
  if (sorted.rank() == 0 || !Shape::SameDims(values, result)) return Invalid(s, "wanted rows, and a position for each value");
  if (sorted.rank() > 1) {
    if (values.rank() != sorted.rank()) return Invalid(s, "wanted as many rows as values have");
    for (int64_t d = 0; d + 1 < sorted.rank(); ++d) {
      if (!KnownEqual(sorted.dim(d), values.dim(d))) return Invalid(s, "wanted as many rows as values have");
    }
  }
  if (s.operands.size() == 3 && (s.operands[2].element_type() != PT::kS64 || !Shape::SameDims(s.operands[2], sorted)))
    return Invalid(s, "wanted a sorter in s64 like the sorted array");
  return absl::OkStatus();
}

template <typename T>
bool StandsAfter(T x, T value, bool right) {
  return right ? x > value : x >= value;
}

template <typename T>
int64_t SearchOne(const T* row, const int64_t* sorter, int64_t n, T value, bool right) {
  int64_t begin = 0, end = n;
  while (begin < end) {
    const int64_t middle = begin + (end - begin) / 2;
    const T x = row[sorter == nullptr ? middle : std::clamp<int64_t>(sorter[middle], 0, n - 1)];
    if (StandsAfter(x, value, right)) end = middle;
    else begin = middle + 1;
  }
  return begin;
}

// kSideBySide values at once, in the steps of SearchOne but without a branch on data: where one would wait for a guess that was wrong
// half the time, the loads of all go on. What has ended stays as it is.
constexpr int kSideBySide = 16;
template <bool kRight, typename T>
void SearchSideBySide(const T* row, int32_t n, const T* values, int32_t* at) {
  int32_t begin[kSideBySide], end[kSideBySide];
  for (int k = 0; k < kSideBySide; ++k) begin[k] = 0, end[k] = n;
  for (int steps = std::bit_width(static_cast<uint32_t>(n)); steps > 0; --steps) {
    for (int k = 0; k < kSideBySide; ++k) {
      const int32_t middle = begin[k] + (end[k] - begin[k]) / 2;
      const bool before = !StandsAfter(row[std::min(middle, n - 1)], values[k], kRight);
      const int32_t next = before & (begin[k] < end[k]) ? middle + 1 : begin[k];
      end[k] = before ? end[k] : middle;
      begin[k] = next;
    }
  }
  std::copy_n(begin, kSideBySide, at);
}

// Values that belong to one row.
template <typename T, typename P>
void SearchRow(const T* row, const int64_t* sorter, int64_t n, const T* values, int64_t count, bool right, P* to) {
  int64_t i = 0;
  const bool narrow = sorter == nullptr && n <= std::numeric_limits<int32_t>::max();
  for (; narrow && i + kSideBySide <= count; i += kSideBySide) {
    int32_t at[kSideBySide];
    if (right) SearchSideBySide<true>(row, static_cast<int32_t>(n), values + i, at);
    else SearchSideBySide<false>(row, static_cast<int32_t>(n), values + i, at);
    std::copy_n(at, kSideBySide, to + i);
  }
  for (; i < count; ++i) to[i] = static_cast<P>(SearchOne(row, sorter, n, values[i], right));
}

absl::Status RunSearch(const Call& call) {
  const Signature& s = call.signature;
  const int64_t n = s.operands[0].constant_dim(s.operands[0].rank() - 1), count = s.operands[1].num_elements_constant();
  const int64_t per_row = s.operands[0].rank() == 1 ? std::max<int64_t>(count, 1) : s.operands[1].constant_dim(s.operands[1].rank() - 1);
  const int64_t* sorter = s.operands.size() == 3 ? static_cast<const int64_t*>(call.operands[2]) : nullptr;
  const bool right = AttributeOr(s, "right") != 0, wide = s.results[0].element_type() == PT::kS64;
  DispatchType(s.operands[0].element_type(), [&]<typename T>(TypeTag<T>) {
    if constexpr (std::is_arithmetic_v<T>) {
      const T *sorted = static_cast<const T*>(call.operands[0]), *values = static_cast<const T*>(call.operands[1]);
      call.parallel.Pieces(count, kPiece / 4, [&](int64_t begin, int64_t end) {
        while (begin < end) {
          const int64_t row = begin / per_row, here = std::min(end, (row + 1) * per_row) - begin;
          const int64_t* by = sorter == nullptr ? nullptr : sorter + row * n;
          const T *in = sorted + row * n, *wanted = values + begin;
          if (wide) SearchRow(in, by, n, wanted, here, right, static_cast<int64_t*>(call.results[0]) + begin);
          else SearchRow(in, by, n, wanted, here, right, static_cast<int32_t*>(call.results[0]) + begin);
          begin += here;
        }
      });
    }
  });
  return absl::OkStatus();
}

constexpr Function kFunctions[] = {{"sort", CheckSort, SortScratch, RunSort, /*takes_symbols=*/true},
                                   {"topk", CheckTopK, TopKScratch, RunTopK, /*takes_symbols=*/true},
                                   {"searchsorted", CheckSearch, nullptr, RunSearch, /*takes_symbols=*/true}};

}  // namespace

absl::Span<const Function> SortFunctions() { return kFunctions; }

}  // namespace tenon::library
