// Dims as polynomials over atoms. An operation turns its operands into a Poly, combines them and interns the result.
#include "hlo/dim/dim.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"

namespace tenon {
namespace {

using i128 = __int128;
constexpr int64_t kNegInf = std::numeric_limits<int64_t>::min();
constexpr int64_t kPosInf = std::numeric_limits<int64_t>::max();

int64_t Checked(i128 value) {
  constexpr i128 kLimit = i128{1} << 62;
  TENON_CHECK(value >= -kLimit && value < kLimit, "dimension arithmetic overflows");
  return static_cast<int64_t>(value);
}

int64_t FloorDivInt(int64_t a, int64_t b) {
  int64_t q = a / b;
  return q - ((a % b != 0) && ((a < 0) != (b < 0)));
}

}  // namespace

struct DimTable::Impl {
  absl::Mutex mutex;
  std::vector<std::unique_ptr<const DimExpr>> expressions;
  absl::flat_hash_map<std::string, const DimExpr*> by_key;

  static Dim Wrap(const DimExpr* e) { return Dim(e, e->table); }

  // `e` without id; its operands are interned.
  Dim Intern(DimExpr e, DimTable* table) {
    std::string key(1, static_cast<char>(e.kind));
    auto append = [&key](const void* p, size_t n) { key.append(static_cast<const char*>(p), n); };
    for (Dim d : e.operands) append(&d, sizeof(d));
    for (int64_t c : e.coefficients) append(&c, sizeof(c));
    append(&e.addend, sizeof(e.addend));
    key += e.symbol;
    absl::MutexLock lock(&mutex);
    auto [it, is_new] = by_key.try_emplace(std::move(key), nullptr);
    if (is_new) {
      e.table = table;
      e.id = static_cast<int32_t>(expressions.size());
      expressions.push_back(std::make_unique<const DimExpr>(std::move(e)));
      it->second = expressions.back().get();
    }
    return Wrap(it->second);
  }
};

struct DimBuilder {
  static Dim Intern(DimTable* table, DimExpr e) { return table->impl_->Intern(std::move(e), table); }
};

namespace {

// A total order by structure, so that a printed form does not depend on what was made first.
int Compare(Dim a, Dim b) {
  if (a == b) return 0;
  if (a.is_constant() || b.is_constant()) {
    if (!a.is_constant()) return -1;
    if (!b.is_constant()) return 1;
    return a.constant() < b.constant() ? -1 : 1;
  }
  const DimExpr &x = *a.expr(), &y = *b.expr();
  if (x.kind != y.kind) return x.kind < y.kind ? -1 : 1;
  if (x.kind == DimExpr::Kind::kSymbol) {
    if (x.symbol.size() != y.symbol.size()) return x.symbol.size() < y.symbol.size() ? -1 : 1;
    return x.symbol.compare(y.symbol);
  }
  for (size_t i = 0; i < std::min(x.operands.size(), y.operands.size()); ++i) {
    if (int c = Compare(x.operands[i], y.operands[i]); c != 0) return c;
  }
  if (x.operands.size() != y.operands.size()) return x.operands.size() < y.operands.size() ? -1 : 1;
  for (size_t i = 0; i < x.coefficients.size(); ++i) {
    if (x.coefficients[i] != y.coefficients[i]) {
      return x.coefficients[i] < y.coefficients[i] ? -1 : 1;
    }
  }
  return x.addend < y.addend ? -1 : x.addend > y.addend;
}

using Monomial = absl::InlinedVector<Dim, 4>;  // atoms, sorted

// Higher degree first, then by the atoms: a monomial order, which division needs.
int CompareMonomials(const Monomial& a, const Monomial& b) {
  if (a.size() != b.size()) return a.size() > b.size() ? -1 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    if (int c = Compare(a[i], b[i]); c != 0) return c;
  }
  return 0;
}

struct Term {
  Monomial atoms;
  int64_t coefficient;
};

struct Poly {
  absl::InlinedVector<Term, 2> terms;  // sorted, coefficients not zero, atoms not empty
  int64_t constant = 0;

  bool is_constant() const { return terms.empty(); }
};

Monomial AtomsOf(Dim d) {
  const DimExpr& e = *d.expr();
  if (e.kind == DimExpr::Kind::kProduct) return Monomial(e.operands.begin(), e.operands.end());
  return {d};
}

Poly ToPoly(Dim d) {
  Poly p;
  if (d.is_constant()) {
    p.constant = d.constant();
  } else if (d.expr()->kind == DimExpr::Kind::kSum) {
    const DimExpr& e = *d.expr();
    for (size_t i = 0; i < e.operands.size(); ++i) {
      p.terms.push_back({AtomsOf(e.operands[i]), e.coefficients[i]});
    }
    p.constant = e.addend;
  } else {
    p.terms.push_back({AtomsOf(d), 1});
  }
  return p;
}

// a + factor * b.
Poly AddScaled(const Poly& a, const Poly& b, int64_t factor) {
  Poly sum;
  sum.constant = Checked(a.constant + static_cast<i128>(factor) * b.constant);
  size_t i = 0, j = 0;
  while (i < a.terms.size() || j < b.terms.size()) {
    int order = i == a.terms.size()   ? 1
                : j == b.terms.size() ? -1
                                      : CompareMonomials(a.terms[i].atoms, b.terms[j].atoms);
    if (order < 0) {
      sum.terms.push_back(a.terms[i++]);
      continue;
    }
    i128 c = static_cast<i128>(factor) * b.terms[j].coefficient;
    if (order == 0) c += a.terms[i++].coefficient;
    if (c != 0) sum.terms.push_back({b.terms[j].atoms, Checked(c)});
    ++j;
  }
  return sum;
}

Poly TimesTerm(const Poly& p, const Term& t) {
  Poly product;
  auto multiply = [&](const Monomial& atoms, int64_t coefficient) {
    Monomial merged;
    std::merge(atoms.begin(), atoms.end(), t.atoms.begin(), t.atoms.end(),
               std::back_inserter(merged), [](Dim a, Dim b) { return Compare(a, b) < 0; });
    Poly one;
    one.terms.push_back({std::move(merged), Checked(static_cast<i128>(coefficient) * t.coefficient)});
    product = AddScaled(product, one, 1);
  };
  for (const Term& term : p.terms) multiply(term.atoms, term.coefficient);
  if (p.constant != 0) {
    if (t.atoms.empty()) {
      product.constant = Checked(static_cast<i128>(p.constant) * t.coefficient);
    } else {
      multiply({}, p.constant);
    }
  }
  return product;
}

Poly Multiply(const Poly& a, const Poly& b) {
  TENON_CHECK((a.terms.size() + 1) * (b.terms.size() + 1) <= 4096, "dimension expression too large");
  Poly product;
  for (const Term& t : b.terms) product = AddScaled(product, TimesTerm(a, t), 1);
  if (b.constant != 0) product = AddScaled(product, a, b.constant);
  return product;
}

DimTable* TableOf(Dim a, Dim b) {
  DimTable* ta = a.is_constant() ? nullptr : a.expr()->table;
  DimTable* tb = b.is_constant() ? nullptr : b.expr()->table;
  TENON_CHECK(ta == nullptr || tb == nullptr || ta == tb, "symbols of two dim tables meet");
  return ta != nullptr ? ta : tb;
}

DimExpr MakeExpr(DimExpr::Kind kind) {
  DimExpr e;
  e.kind = kind;
  return e;
}

Dim MonomialDim(DimTable* table, const Monomial& atoms) {
  if (atoms.size() == 1) return atoms[0];
  DimExpr e = MakeExpr(DimExpr::Kind::kProduct);
  e.operands.assign(atoms.begin(), atoms.end());
  return DimBuilder::Intern(table, std::move(e));
}

Dim FromTerms(DimTable* table, const Poly& p) {
  if (p.terms.empty()) return Dim(p.constant);
  if (p.terms.size() == 1 && p.constant == 0 && p.terms[0].coefficient == 1) {
    return MonomialDim(table, p.terms[0].atoms);
  }
  DimExpr e = MakeExpr(DimExpr::Kind::kSum);
  for (const Term& t : p.terms) {
    e.operands.push_back(MonomialDim(table, t.atoms));
    e.coefficients.push_back(t.coefficient);
  }
  e.addend = p.constant;
  return DimBuilder::Intern(table, std::move(e));
}

// n*floordiv(a,n) is a - mod(a,n): with a matching mod beside it, or where n divides a, it becomes a.
bool RecombineOnce(DimTable* table, Poly* p) {
  for (const Term& t : p->terms) {
    for (size_t i = 0; i < t.atoms.size(); ++i) {
      const DimExpr& e = *t.atoms[i].expr();
      if (e.kind != DimExpr::Kind::kFloorDiv) continue;
      Dim a = e.operands[0], n = e.operands[1];
      Poly divisor = ToPoly(n);
      // The term must be k * n * floordiv(a, n) * rest, with n one term.
      Term rest{{}, t.coefficient};
      for (size_t j = 0; j < t.atoms.size(); ++j) {
        if (j != i) rest.atoms.push_back(t.atoms[j]);
      }
      if (divisor.is_constant()) {
        if (t.coefficient % divisor.constant != 0) continue;
        rest.coefficient /= divisor.constant;
      } else {
        if (divisor.terms.size() != 1 || divisor.constant != 0) continue;
        const Term& d = divisor.terms[0];
        if (t.coefficient % d.coefficient != 0) continue;
        rest.coefficient /= d.coefficient;
        bool found = true;
        for (Dim atom : d.atoms) {
          auto it = std::find(rest.atoms.begin(), rest.atoms.end(), atom);
          found = found && it != rest.atoms.end();
          if (!found) break;
          rest.atoms.erase(it);
        }
        if (!found) continue;
      }
      Poly old;
      old.terms.push_back(t);
      if (Divides(n, a) == Ternary::kYes) {
        *p = AddScaled(AddScaled(*p, old, -1), TimesTerm(ToPoly(a), rest), 1);
        return true;
      }
      DimExpr mod = MakeExpr(DimExpr::Kind::kMod);
      mod.operands = {a, n};
      Monomial mod_atoms(rest.atoms);
      Dim mod_dim = DimBuilder::Intern(table, std::move(mod));
      mod_atoms.insert(std::upper_bound(mod_atoms.begin(), mod_atoms.end(), mod_dim,
                                        [](Dim x, Dim y) { return Compare(x, y) < 0; }),
                       mod_dim);
      for (const Term& m : p->terms) {
        if (m.coefficient != rest.coefficient || m.atoms != mod_atoms) continue;
        old.terms.clear();
        Poly both = AddScaled(*p, Poly{{m}, 0}, -1);
        old.terms.push_back(t);
        *p = AddScaled(AddScaled(both, old, -1), TimesTerm(ToPoly(a), rest), 1);
        return true;
      }
    }
  }
  return false;
}

Dim FromPoly(DimTable* table, Poly p) {
  while (RecombineOnce(table, &p)) {
  }
  return FromTerms(table, p);
}

// Bounds; the infinities are the ends of int64_t.
struct Range {
  int64_t lo = kNegInf, hi = kPosInf;
};

int64_t Saturate(i128 v) { return v <= kNegInf ? kNegInf : v >= kPosInf ? kPosInf : static_cast<int64_t>(v); }

bool Infinite(int64_t v) { return v == kNegInf || v == kPosInf; }

int64_t MulBound(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return 0;
  if (Infinite(a) || Infinite(b)) return (a < 0) != (b < 0) ? kNegInf : kPosInf;
  return Saturate(static_cast<i128>(a) * b);
}

Range MulRange(Range a, Range b) {
  auto corners = {MulBound(a.lo, b.lo), MulBound(a.lo, b.hi), MulBound(a.hi, b.lo),
                  MulBound(a.hi, b.hi)};
  return {std::min(corners), std::max(corners)};
}

int64_t AddBound(int64_t a, int64_t b, int64_t infinity) {
  return Infinite(a) || Infinite(b) ? infinity : Saturate(static_cast<i128>(a) + b);
}

Range AddRange(Range a, Range b) {
  return {AddBound(a.lo, b.lo, kNegInf), AddBound(a.hi, b.hi, kPosInf)};
}

int64_t DivBound(int64_t a, int64_t b) {  // b > 0
  if (b == kPosInf) return a < 0 ? -1 : 0;
  return Infinite(a) ? a : FloorDivInt(a, b);
}

Range RangeOf(Dim d);

Range FloorDivRange(Range a, Range b) {
  if (b.lo <= 0) return {};
  auto corners = {DivBound(a.lo, b.lo), DivBound(a.lo, b.hi), DivBound(a.hi, b.lo),
                  DivBound(a.hi, b.hi)};
  return {std::min(corners), std::max(corners)};
}

Range ModRange(Range a, Range b) {
  if (b.lo <= 0) return {};
  Range r{0, Infinite(b.hi) ? kPosInf : b.hi - 1};
  if (a.lo >= 0) r.hi = std::min(r.hi, a.hi);
  return r;
}

Range Both(Range a, Range b) { return {std::max(a.lo, b.lo), std::min(a.hi, b.hi)}; }

Range RangeOfPoly(const Poly& p) {
  Range sum{p.constant, p.constant};
  for (const Term& t : p.terms) {
    Range product{t.coefficient, t.coefficient};
    for (Dim atom : t.atoms) product = MulRange(product, RangeOf(atom));
    sum = AddRange(sum, product);
  }
  return sum;
}

// k*n*floordiv(a,n) is k*a less k times what a division leaves, 0 to n-1: where the sum holds the other sign of a, more is known of it
// so. 2*floordiv(s,2) is not above s, by which a window that fits is inside.
Range RangeWithoutFloorDiv(const DimExpr& sum) {
  Poly p;
  p.constant = sum.addend;
  Range rest{0, 0};
  for (size_t i = 0; i < sum.operands.size(); ++i) {
    const int64_t c = sum.coefficients[i];
    const DimExpr& o = *sum.operands[i].expr();
    const int64_t n = o.kind == DimExpr::Kind::kFloorDiv ? o.operands[1].constant_or(0) : 0;
    if (n > 0 && c % n == 0) {
      p = AddScaled(p, ToPoly(o.operands[0]), c / n);
      rest = AddRange(rest, MulRange({-(c / n), -(c / n)}, {0, n - 1}));
    } else {
      p = AddScaled(p, Poly{{{AtomsOf(sum.operands[i]), 1}}, 0}, c);
    }
  }
  return AddRange(RangeOfPoly(p), rest);
}

Range RangeOfExpr(const DimExpr& e) {
  auto operand = [&e](int i) { return RangeOf(e.operands[i]); };
  switch (e.kind) {
    case DimExpr::Kind::kSymbol:
      return {e.lower, e.upper};
    case DimExpr::Kind::kSum: {
      Range sum{e.addend, e.addend};
      for (size_t i = 0; i < e.operands.size(); ++i) {
        sum = AddRange(sum, MulRange({e.coefficients[i], e.coefficients[i]}, operand(i)));
      }
      const bool divides = std::any_of(e.operands.begin(), e.operands.end(),
                                       [](Dim o) { return o.expr()->kind == DimExpr::Kind::kFloorDiv; });
      return divides ? Both(sum, RangeWithoutFloorDiv(e)) : sum;
    }
    case DimExpr::Kind::kProduct: {
      Range product{1, 1};
      for (size_t i = 0; i < e.operands.size();) {
        // An even power is not negative.
        Range r = operand(i), power = r;
        size_t j = i + 1;
        for (; j < e.operands.size() && e.operands[j] == e.operands[i]; ++j) {
          power = MulRange(power, r);
        }
        if ((j - i) % 2 == 0) power.lo = std::max<int64_t>(power.lo, 0);
        product = MulRange(product, power);
        i = j;
      }
      return product;
    }
    case DimExpr::Kind::kFloorDiv:
      return FloorDivRange(operand(0), operand(1));
    case DimExpr::Kind::kMod:
      return ModRange(operand(0), operand(1));
    case DimExpr::Kind::kMin: {
      Range a = operand(0), b = operand(1);
      return {std::min(a.lo, b.lo), std::min(a.hi, b.hi)};
    }
    case DimExpr::Kind::kMax: {
      Range a = operand(0), b = operand(1);
      return {std::max(a.lo, b.lo), std::max(a.hi, b.hi)};
    }
  }
  return {};
}

Range RangeOf(Dim d) {
  if (d.is_constant()) return {d.constant(), d.constant()};
  return RangeOfExpr(*d.expr());
}

// A known positive divisor of every value of d (0 for the constant 0).
int64_t KnownDivisor(Dim d) {
  if (d.is_constant()) return std::abs(d.constant());
  const DimExpr& e = *d.expr();
  switch (e.kind) {
    case DimExpr::Kind::kSymbol:
      return e.divisor;
    case DimExpr::Kind::kSum: {
      int64_t g = std::abs(e.addend);
      for (size_t i = 0; i < e.operands.size(); ++i) {
        i128 term = static_cast<i128>(KnownDivisor(e.operands[i])) * std::abs(e.coefficients[i]);
        // A divisor too large to say may be dropped to the coefficient: it divides all the same.
        g = std::gcd(g, term > kPosInf / 2 ? std::abs(e.coefficients[i]) : static_cast<int64_t>(term));
      }
      return g;
    }
    case DimExpr::Kind::kProduct: {
      i128 product = 1;
      for (Dim operand : e.operands) {
        i128 next = product * KnownDivisor(operand);
        if (next > kPosInf / 2) break;
        product = next;
      }
      return static_cast<int64_t>(product);
    }
    case DimExpr::Kind::kFloorDiv: {
      // floordiv(k*n*x, n) is a multiple of k.
      if (!e.operands[1].is_constant()) return 1;
      int64_t n = std::abs(e.operands[1].constant()), g = KnownDivisor(e.operands[0]);
      return g % n == 0 ? std::max<int64_t>(g / n, 1) : 1;
    }
    case DimExpr::Kind::kMod:
    case DimExpr::Kind::kMin:
    case DimExpr::Kind::kMax:
      return std::gcd(KnownDivisor(e.operands[0]), KnownDivisor(e.operands[1]));
  }
  return 1;
}

// p = quotient * divisor + remainder, by leading terms. For a constant divisor the remainder's coefficients are reduced.
void DivideTerms(Poly p, const Poly& divisor, Poly* quotient, Poly* remainder) {
  *quotient = *remainder = Poly{};
  Term lead = divisor.is_constant() ? Term{{}, divisor.constant} : divisor.terms[0];
  auto divide = [&](const Monomial& atoms, int64_t coefficient) -> std::optional<Term> {
    int64_t q = divisor.is_constant() ? FloorDivInt(coefficient, lead.coefficient)
                                      : coefficient / lead.coefficient;
    if (q == 0) return std::nullopt;
    Monomial left(atoms);
    for (Dim atom : lead.atoms) {
      auto it = std::find(left.begin(), left.end(), atom);
      if (it == left.end()) return std::nullopt;
      left.erase(it);
    }
    return Term{std::move(left), q};
  };
  while (!p.terms.empty()) {
    Term t = p.terms[0];
    if (std::optional<Term> q = divide(t.atoms, t.coefficient)) {
      Poly piece;
      if (q->atoms.empty()) {
        piece.constant = q->coefficient;
      } else {
        piece.terms.push_back(*q);
      }
      *quotient = AddScaled(*quotient, piece, 1);
      p = AddScaled(p, TimesTerm(divisor, *q), -1);
      if (p.terms.empty() || CompareMonomials(p.terms[0].atoms, t.atoms) != 0) continue;
      t = p.terms[0];
    }
    // What is left of the leading term.
    Poly rest{{t}, 0};
    *remainder = AddScaled(*remainder, rest, 1);
    p = AddScaled(p, rest, -1);
  }
  if (divisor.is_constant()) {
    int64_t q = FloorDivInt(p.constant, divisor.constant);
    quotient->constant = Checked(static_cast<i128>(quotient->constant) + q);
    p.constant -= q * divisor.constant;
  }
  remainder->constant = Checked(static_cast<i128>(remainder->constant) + p.constant);
}

bool InRange(Dim r, Dim n) {  // 0 <= r < n
  if (!r.is_constant() && r.expr()->kind == DimExpr::Kind::kMod && r.expr()->operands[1] == n &&
      LowerBound(n) > 0) {
    return true;
  }
  return LowerBound(r) >= 0 && Less(r, n) == Ternary::kYes;
}

struct DivMod {
  Dim quotient, remainder;
};

DimExpr Pair(DimExpr::Kind kind, Dim a, Dim b) {
  DimExpr e = MakeExpr(kind);
  e.operands = {a, b};
  return e;
}

// floordiv(r, n) and mod(r, n) of what the polynomial division left over.
DivMod DivideRest(DimTable* table, Dim r, Dim n) {
  if (InRange(r, n)) return {0, r};
  // -1 by a size that is no less than 1.
  if (const Range q = FloorDivRange(RangeOf(r), RangeOf(n)); q.lo == q.hi && !Infinite(q.lo)) return {q.lo, r - Dim(q.lo) * n};
  if (n.is_constant()) {
    int64_t c = n.constant();  // > 0
    // A common factor of the coefficients: floor((g*x + k) / (g*m)) = floor((x + floor(k/g)) / m).
    Poly p = ToPoly(r);
    int64_t g = c;
    for (const Term& t : p.terms) g = std::gcd(g, std::abs(t.coefficient));
    if (g > 1) {
      int64_t k = FloorDivInt(p.constant, g), left = p.constant - k * g;
      for (Term& t : p.terms) t.coefficient /= g;
      p.constant = k;
      Dim x = FromPoly(table, p);
      return {FloorDiv(x, c / g), Mod(x, c / g) * Dim(g) + Dim(left)};
    }
    // floor((floor(a/b) + k) / c) = floor((a + k*b) / (b*c)): sizes of strided windows, one behind the other.
    if (const Dim whole = r - p.constant; p.constant != 0 && !whole.is_constant() && whole.expr()->kind == DimExpr::Kind::kFloorDiv) {
      const Dim a = whole.expr()->operands[0], b = whole.expr()->operands[1];
      if (b.is_constant() && b.constant() > 0) {
        return {FloorDiv(a + b * Dim(p.constant), b * n), DimBuilder::Intern(table, Pair(DimExpr::Kind::kMod, r, n))};
      }
    }
    if (!r.is_constant()) {
      const DimExpr& e = *r.expr();
      if (e.kind == DimExpr::Kind::kFloorDiv && e.operands[1].is_constant() &&
          e.operands[1].constant() > 0) {
        Dim both = e.operands[1] * n;
        return {FloorDiv(e.operands[0], both),
                DimBuilder::Intern(table, Pair(DimExpr::Kind::kMod, r, n))};
      }
      if (e.kind == DimExpr::Kind::kMod && e.operands[1].is_constant() &&
          e.operands[1].constant() % c == 0) {
        return {DimBuilder::Intern(table, Pair(DimExpr::Kind::kFloorDiv, r, n)),
                Mod(e.operands[0], n)};
      }
    }
  }
  Dim quotient = DimBuilder::Intern(table, Pair(DimExpr::Kind::kFloorDiv, r, n));
  if (Divides(n, r) == Ternary::kYes) return {quotient, 0};
  return {quotient, DimBuilder::Intern(table, Pair(DimExpr::Kind::kMod, r, n))};
}

DivMod Divide(Dim a, Dim n) {
  TENON_CHECK(n != Dim(0), "dimension divided by zero");
  if (a.is_constant() && n.is_constant()) {
    int64_t q = FloorDivInt(a.constant(), n.constant());
    return {q, a.constant() - q * n.constant()};
  }
  if (n.is_constant() && n.constant() < 0) {
    DivMod d = Divide(0 - a, 0 - n);
    return {d.quotient, 0 - d.remainder};
  }
  DimTable* table = TableOf(a, n);
  Poly quotient, remainder;
  DivideTerms(ToPoly(a), ToPoly(n), &quotient, &remainder);
  DivMod rest = DivideRest(table, FromPoly(table, remainder), n);
  return {FromPoly(table, quotient) + rest.quotient, rest.remainder};
}

// Min and Max keep a sorted chain of operands without one that another beats.
Dim MinMax(DimExpr::Kind kind, Dim a, Dim b) {
  if (a == b) return a;
  DimTable* table = TableOf(a, b);
  if (table == nullptr) {
    return kind == DimExpr::Kind::kMin ? std::min(a.constant(), b.constant())
                                       : std::max(a.constant(), b.constant());
  }
  std::vector<Dim> all;
  std::function<void(Dim)> flatten = [&](Dim d) {
    if (!d.is_constant() && d.expr()->kind == kind) {
      for (Dim operand : d.expr()->operands) flatten(operand);
    } else {
      all.push_back(d);
    }
  };
  flatten(a);
  flatten(b);
  std::sort(all.begin(), all.end(), [](Dim x, Dim y) { return Compare(x, y) < 0; });
  all.erase(std::unique(all.begin(), all.end()), all.end());
  // x <= y for certain
  auto at_most = [](Dim x, Dim y) {
    auto has = [](Dim chain, DimExpr::Kind k, Dim part) {
      return !chain.is_constant() && chain.expr()->kind == k &&
             (chain.expr()->operands[0] == part || chain.expr()->operands[1] == part);
    };
    return UpperBound(x - y) <= 0 || has(x, DimExpr::Kind::kMin, y) ||
           has(y, DimExpr::Kind::kMax, x);
  };
  std::vector<Dim> kept;
  for (size_t i = 0; i < all.size(); ++i) {
    bool beaten = false;
    for (size_t j = 0; j < all.size() && !beaten; ++j) {
      if (i == j) continue;
      bool j_wins = kind == DimExpr::Kind::kMin ? at_most(all[j], all[i]) : at_most(all[i], all[j]);
      bool i_wins = kind == DimExpr::Kind::kMin ? at_most(all[i], all[j]) : at_most(all[j], all[i]);
      beaten = j_wins && (!i_wins || j < i);
    }
    if (!beaten) kept.push_back(all[i]);
  }
  Dim result = kept.back();
  for (int i = static_cast<int>(kept.size()) - 2; i >= 0; --i) {
    result = DimBuilder::Intern(table, Pair(kind, kept[i], result));
  }
  return result;
}

}  // namespace

Dim operator+(Dim a, Dim b) {
  if (a.is_constant() && b.is_constant()) {
    return Checked(static_cast<i128>(a.constant()) + b.constant());
  }
  return FromPoly(TableOf(a, b), AddScaled(ToPoly(a), ToPoly(b), 1));
}

Dim operator-(Dim a, Dim b) {
  if (a.is_constant() && b.is_constant()) {
    return Checked(static_cast<i128>(a.constant()) - b.constant());
  }
  if (a == b) return 0;
  return FromPoly(TableOf(a, b), AddScaled(ToPoly(a), ToPoly(b), -1));
}

Dim operator*(Dim a, Dim b) {
  if (a.is_constant() && b.is_constant()) {
    return Checked(static_cast<i128>(a.constant()) * b.constant());
  }
  if (a == Dim(1)) return b;
  if (b == Dim(1)) return a;
  return FromPoly(TableOf(a, b), Multiply(ToPoly(a), ToPoly(b)));
}

Dim FloorDiv(Dim a, Dim b) { return Divide(a, b).quotient; }
Dim Mod(Dim a, Dim b) { return Divide(a, b).remainder; }

Dim CeilDiv(Dim a, Dim b) {
  // The first form meets what frontends write, (s0+1)//2, in one canonical form.
  return LowerBound(b) > 0 ? FloorDiv(a + b - 1, b) : 0 - FloorDiv(0 - a, b);
}

Dim Min(Dim a, Dim b) { return MinMax(DimExpr::Kind::kMin, a, b); }
Dim Max(Dim a, Dim b) { return MinMax(DimExpr::Kind::kMax, a, b); }

void Dim::ThrowSymbolic() const { throw SymbolicDim("symbolic dimension used as a number: " + ToString()); }

int64_t LowerBound(Dim d) { return RangeOf(d).lo; }
int64_t UpperBound(Dim d) { return RangeOf(d).hi; }

int64_t Typical(Dim d) {
  if (d.is_constant()) return d.constant();
  const DimExpr& e = *d.expr();
  auto operand = [&](size_t i) { return Typical(e.operands[i]); };
  switch (e.kind) {
    case DimExpr::Kind::kSymbol: {
      const int64_t near = std::clamp(e.typical, e.lower, e.upper);
      return std::max(e.lower, near - near % e.divisor);
    }
    case DimExpr::Kind::kSum: {
      int64_t sum = e.addend;
      for (size_t i = 0; i < e.operands.size(); ++i) sum += e.coefficients[i] * operand(i);
      return sum;
    }
    case DimExpr::Kind::kProduct: {
      int64_t product = 1;
      for (size_t i = 0; i < e.operands.size(); ++i) product = std::min(product * operand(i), int64_t{1} << 40);
      return product;
    }
    case DimExpr::Kind::kFloorDiv: return operand(1) == 0 ? 0 : FloorDivInt(operand(0), operand(1));
    case DimExpr::Kind::kMod: return operand(1) == 0 ? 0 : operand(0) - FloorDivInt(operand(0), operand(1)) * operand(1);
    case DimExpr::Kind::kMin: return std::min(operand(0), operand(1));
    case DimExpr::Kind::kMax: return std::max(operand(0), operand(1));
  }
  return kTypicalSize;
}

namespace {

// The least number that leaves no exact quotient (floordiv(x, n) where n divides x) in d's multiple by it; 1 if that is large.
int64_t ExactDenominator(Dim d) {
  constexpr int64_t kLarge = 1 << 16;
  int64_t all = 1;
  for (const Term& term : ToPoly(d).terms) {
    i128 product = 1;
    for (Dim atom : term.atoms) {
      const DimExpr& e = *atom.expr();
      if (e.kind != DimExpr::Kind::kFloorDiv || !e.operands[1].is_constant()) continue;
      if (Divides(e.operands[1], e.operands[0]) == Ternary::kYes) product *= e.operands[1].constant();
      if (product <= 0 || product > kLarge) return 1;
    }
    all = std::lcm(all, static_cast<int64_t>(product));
    if (all > kLarge) return 1;
  }
  return all;
}

}  // namespace

Ternary Equal(Dim a, Dim b) {
  if (a == b) return Ternary::kYes;
  Dim d = a - b;
  if (d.is_constant()) return d.constant() == 0 ? Ternary::kYes : Ternary::kNo;
  Range r = RangeOf(d);
  if (r.lo > 0 || r.hi < 0) return Ternary::kNo;
  if (r.lo == 0 && r.hi == 0) return Ternary::kYes;
  // k + g * (...) is never 0 unless g divides k.
  int64_t k = d.expr()->kind == DimExpr::Kind::kSum ? d.expr()->addend : 0;
  int64_t g = KnownDivisor(d - k);
  if (g > 1 && k % g != 0) return Ternary::kNo;
  // Exact quotients have no one form: floordiv(t,2) is 2*floordiv(t,4) where 4 divides t. Their multiples have.
  if (const int64_t n = ExactDenominator(d); n > 1) return Equal(d * Dim(n), 0);
  return Ternary::kUnknown;
}

Ternary Less(Dim a, Dim b) {
  Range r = RangeOf(b - a);
  if (r.lo > 0) return Ternary::kYes;
  if (r.hi <= 0) return Ternary::kNo;
  return Ternary::kUnknown;
}

Ternary Divides(Dim divisor, Dim a) {
  if (a == Dim(0)) return Ternary::kYes;
  if (divisor.is_constant()) {
    int64_t n = divisor.constant();
    if (n == 0) return a.is_constant() ? Ternary::kNo : Ternary::kUnknown;
    if (KnownDivisor(a) % n == 0) return Ternary::kYes;
    if (a.is_constant()) return Ternary::kNo;
    // The constant part decides when everything else is a multiple.
    int64_t k = a.expr()->kind == DimExpr::Kind::kSum ? a.expr()->addend : 0;
    if (k % n != 0 && KnownDivisor(a - k) % n == 0) return Ternary::kNo;
    return Ternary::kUnknown;
  }
  Poly quotient, remainder;
  DivideTerms(ToPoly(a), ToPoly(divisor), &quotient, &remainder);
  if (remainder.is_constant() && remainder.constant == 0) return Ternary::kYes;
  // A symbol may be 1, which divides everything.
  return Ternary::kUnknown;
}

absl::StatusOr<int64_t> Evaluate(
    Dim d, const std::function<absl::StatusOr<int64_t>(std::string_view)>& value_of) {
  if (d.is_constant()) return d.constant();
  const DimExpr& e = *d.expr();
  if (e.kind == DimExpr::Kind::kSymbol) return value_of(e.symbol);
  absl::InlinedVector<int64_t, 4> v;
  for (Dim operand : e.operands) {
    TENON_ASSIGN_OR_RETURN(int64_t value, Evaluate(operand, value_of));
    v.push_back(value);
  }
  i128 result = e.addend;
  auto fits = [](i128 x) { return x >= kNegInf && x <= kPosInf; };
  switch (e.kind) {
    case DimExpr::Kind::kSum:
      for (size_t i = 0; i < v.size(); ++i) result += static_cast<i128>(e.coefficients[i]) * v[i];
      break;
    case DimExpr::Kind::kProduct:
      result = 1;
      for (int64_t x : v) {
        result *= x;
        if (!fits(result)) break;
      }
      break;
    case DimExpr::Kind::kFloorDiv:
    case DimExpr::Kind::kMod:
      if (v[1] == 0) return absl::InvalidArgumentError(absl::StrCat("division by zero in ", d.ToString()));
      result = FloorDivInt(v[0], v[1]);
      if (e.kind == DimExpr::Kind::kMod) result = v[0] - result * v[1];
      break;
    case DimExpr::Kind::kMin:
      result = std::min(v[0], v[1]);
      break;
    default:
      result = std::max(v[0], v[1]);
      break;
  }
  if (!fits(result)) {
    return absl::OutOfRangeError(absl::StrCat("dimension ", d.ToString(), " overflows"));
  }
  return static_cast<int64_t>(result);
}

DimTable::DimTable() : impl_(std::make_unique<Impl>()) {}
DimTable::~DimTable() = default;

Dim DimTable::Symbol(std::string_view name, int64_t lower, int64_t upper, int64_t divisor, int64_t typical) {
  TENON_CHECK(!name.empty() && lower <= upper && divisor >= 1 && typical >= 1, std::string(name));
  DimExpr e = MakeExpr(DimExpr::Kind::kSymbol);
  e.symbol = std::string(name);
  e.lower = lower;
  e.upper = upper;
  e.divisor = divisor;
  e.typical = typical;
  Dim d = impl_->Intern(std::move(e), this);
  const DimExpr& found = *d.expr();
  const bool defaults = lower == 0 && upper == INT64_MAX && divisor == 1 && typical == kTypicalSize;
  const bool same = found.lower == lower && found.upper == upper && found.divisor == divisor && found.typical == typical;
  TENON_CHECK(defaults || same, absl::StrCat("symbol ", std::string(name), " exists with another range"));
  return d;
}

Dim DimTable::Import(Dim foreign) {
  if (foreign.is_constant() || foreign.expr()->table == this) return foreign;
  const DimExpr& e = *foreign.expr();
  auto operand = [&](int i) { return Import(e.operands[i]); };
  switch (e.kind) {
    case DimExpr::Kind::kSymbol:
      return Symbol(e.symbol, e.lower, e.upper, e.divisor, e.typical);
    case DimExpr::Kind::kSum: {
      Dim sum = e.addend;
      for (size_t i = 0; i < e.operands.size(); ++i) sum += operand(i) * Dim(e.coefficients[i]);
      return sum;
    }
    case DimExpr::Kind::kProduct: {
      Dim product = 1;
      for (size_t i = 0; i < e.operands.size(); ++i) product *= operand(i);
      return product;
    }
    case DimExpr::Kind::kFloorDiv:
      return FloorDiv(operand(0), operand(1));
    case DimExpr::Kind::kMod:
      return Mod(operand(0), operand(1));
    case DimExpr::Kind::kMin:
      return Min(operand(0), operand(1));
    case DimExpr::Kind::kMax:
      return Max(operand(0), operand(1));
  }
  return 0;
}

}  // namespace tenon
