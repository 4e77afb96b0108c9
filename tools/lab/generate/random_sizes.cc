#include "tools/lab/generate/random_sizes.h"

#include <algorithm>

#include "hlo/check.h"

namespace tenon::lab {
namespace {

const std::string& NameOf(Dim symbol) { return symbol.expr()->symbol; }

// Within the range of the symbol, which is wide: one of what programs are tried with, or any small number.
int64_t SmallSize(Dim symbol, Random& random) {
  constexpr int64_t kSizes[] = {0, 1, 2, 7};
  const int64_t any = random.Between(0, 17);
  return Nearest(symbol, random.OneIn(3) ? any : random.Pick(kSizes));
}

int64_t LargeSize(Dim symbol, Random& random) {
  constexpr int64_t kSizes[] = {64, 1000};
  const int64_t any = random.Between(20, 1000);
  return Nearest(symbol, random.OneIn(3) ? any : random.Pick(kSizes));
}

}  // namespace

int64_t Nearest(Dim symbol, int64_t size) {
  const DimExpr& e = *symbol.expr();
  size = std::clamp(size, e.lower, e.upper);
  const int64_t down = size - size % e.divisor, up = down + e.divisor;
  if (down >= e.lower) return down;
  return up <= e.upper ? up : e.lower;
}

std::vector<Dim> RandomSymbols(DimTable& table, Random& random) {
  constexpr std::string_view kNames[] = {"s", "t", "u"};
  constexpr int64_t kLower[] = {0, 0, 0, 1, 2, 2, 3}, kUpper[] = {INT64_MAX, INT64_MAX, INT64_MAX, 1000, 1024, 100, 64, 9};
  constexpr int64_t kDivisors[] = {2, 4, 8};
  constexpr int64_t kPlannedFor[] = {kTypicalSize, kTypicalSize, 1, 7, 64, 1000, 1 << 18};
  std::vector<Dim> symbols;
  for (int64_t n = random.Between(1, 3), k = 0; k < n; ++k) {
    const int64_t divisor = random.OneIn(8) ? random.Pick(kDivisors) : 1;
    int64_t lower = random.Pick(kLower), upper = random.Pick(kUpper);
    lower = (lower + divisor - 1) / divisor * divisor;
    if (upper != INT64_MAX) upper -= upper % divisor;
    symbols.push_back(table.Symbol(kNames[k], lower, std::max(upper, lower + divisor), divisor, random.Pick(kPlannedFor)));
  }
  return symbols;
}

std::vector<Dim> RandomExpressions(const std::vector<Dim>& symbols, Random& random) {
  std::vector<Dim> made;
  for (int64_t n = random.Between(1, 4); n > 0; --n) {
    const Dim a = random.Pick(symbols), b = random.Pick(symbols);
    const int64_t k = random.Between(1, 5);
    switch (random.Below(12)) {
      case 0: made.push_back(a + b); break;
      case 1: made.push_back(a * b); break;
      case 2: made.push_back(a + k); break;
      case 3: made.push_back(a * Dim(k)); break;
      case 4: made.push_back(FloorDiv(a, k + 1)); break;
      case 5: made.push_back(CeilDiv(a, k + 1)); break;
      case 6: made.push_back(Mod(a, k + 1)); break;
      case 7: made.push_back(Mod(a + b, k + 1) + 1); break;
      case 8: made.push_back(Min(a, b)); break;
      case 9: made.push_back(Max(a, b + k)); break;
      case 10: made.push_back(random.OneIn(2) ? Min(a, k) : Max(a, k)); break;
      default: made.push_back(a * Dim(k) + k); break;
    }
  }
  return made;
}

std::vector<Sizes> ProbesOf(const std::vector<Dim>& symbols) {
  std::vector<Sizes> probes(1);
  for (Dim d : symbols) probes[0][NameOf(d)] = Nearest(d, 17);
  for (Dim large : symbols) {
    Sizes& sizes = probes.emplace_back();
    for (Dim d : symbols) sizes[NameOf(d)] = Nearest(d, d == large ? 1000 : 7);
  }
  return probes;
}

int64_t ElementsWith(const Module& module, const Sizes& sizes) {
  double total = 0;
  for (const Computation* c : module.computations()) {
    for (const Instruction* op : c->instructions()) {
      for (const Shape& leaf : FlattenShape(op->shape())) {
        double elements = 1, but_for_zeros = 1;  // HLO bounds the latter, so that strides are numbers
        for (Dim d : leaf.dims()) {
          const absl::StatusOr<int64_t> size = SizeOf(d, sizes);
          if (!size.ok() || *size < 0) return INT64_MAX;
          elements *= static_cast<double>(*size);
          but_for_zeros *= static_cast<double>(std::max<int64_t>(*size, 1));
        }
        if (but_for_zeros >= 0x1p53) return INT64_MAX;
        total += elements;
      }
    }
  }
  return total < 1e18 ? static_cast<int64_t>(total) : INT64_MAX;
}

std::vector<Sizes> RandomSizes(const Module& module, Random& random, int count, int64_t max_elements) {
  const std::vector<Dim> symbols = SymbolsOf(module);
  TENON_CHECK(!symbols.empty(), module.name());
  std::vector<Sizes> all;
  Sizes smallest;
  for (Dim d : symbols) smallest[NameOf(d)] = Nearest(d, 0);
  for (int tried = 0; tried < 8 * count && static_cast<int>(all.size()) < count; ++tried) {
    Sizes sizes;
    const Dim large = random.Pick(symbols);
    const bool some_large = random.OneIn(2);
    for (Dim d : symbols) sizes[NameOf(d)] = some_large && d == large ? LargeSize(d, random) : SmallSize(d, random);
    if (random.OneIn(6)) sizes = smallest;
    if (std::find(all.begin(), all.end(), sizes) != all.end() || ElementsWith(module, sizes) > max_elements) continue;
    all.push_back(std::move(sizes));
  }
  if (all.empty()) all.push_back(std::move(smallest));
  return all;
}

std::vector<Sizes> OtherSizes(const Module& module, const Sizes& sizes) {
  constexpr int64_t kMostElements = 1 << 18;
  const std::vector<Dim> symbols = SymbolsOf(module);
  std::vector<Sizes> all(2);
  for (Dim d : symbols) {
    const int64_t now = sizes.at(NameOf(d));
    all[0][NameOf(d)] = Nearest(d, 0);
    all[1][NameOf(d)] = Nearest(d, 2 * now + 3);
  }
  for (Dim large : symbols) {
    Sizes& one = all.emplace_back();
    for (Dim d : symbols) one[NameOf(d)] = Nearest(d, d == large ? 300 : 1);
  }
  std::erase_if(all, [&](const Sizes& s) { return s == sizes || ElementsWith(module, s) > kMostElements; });
  return all;
}

}  // namespace tenon::lab
