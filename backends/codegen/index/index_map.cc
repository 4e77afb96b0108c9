#include "backends/codegen/index/index_map.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "hlo/check.h"

namespace tenon {
namespace {

using Kind = IndexNode::Kind;
using Terms = absl::InlinedVector<IndexNode::Term, 3>;

void AppendDim(std::string* key, Dim d) {
  uint64_t bits =
      d.is_constant() ? static_cast<uint64_t>(d.constant()) : reinterpret_cast<uint64_t>(d.expr());
  key->push_back(d.is_constant() ? 'c' : 's');
  key->append(reinterpret_cast<const char*>(&bits), sizeof(bits));
}
void AppendPointer(std::string* key, const void* p) {
  key->append(reinterpret_cast<const char*>(&p), sizeof(p));
}

std::string KeyOf(const IndexNode& n) {
  std::string key(1, static_cast<char>(n.kind));
  switch (n.kind) {
    case Kind::kVar:
      key.push_back(static_cast<char>(n.var));
      break;
    case Kind::kSum:
      for (const auto& t : n.terms) {
        AppendPointer(&key, t.node);
        AppendDim(&key, t.coefficient);
      }
      AppendDim(&key, n.addend);
      break;
    case Kind::kFloorDiv:
    case Kind::kMod:
      AppendPointer(&key, n.inner);
      AppendDim(&key, n.divisor);
      break;
    case Kind::kRuntime:
      AppendPointer(&key, n.producer);
      for (Index i : n.at) AppendPointer(&key, i);
      key.push_back(n.bounded ? 'b' : 'u');
      AppendDim(&key, n.high);
      break;
  }
  return key;
}

bool IsZero(Dim d) { return d == Dim(0); }
bool IsNonNegative(Dim d) { return d.is_constant() ? d.constant() >= 0 : LowerBound(d) >= 0; }
bool IsNegative(Dim d) { return d.is_constant() && d.constant() < 0; }
bool KnownLess(Dim a, Dim b) {
  if (a.is_constant() && b.is_constant()) return a.constant() < b.constant();
  return Less(a, b) == Ternary::kYes;
}
bool InRange(Index e, Dim size) {
  return e->bounded && IsNonNegative(e->low) && KnownLess(e->high, size);
}

// a / divisor if the division is known to be exact.
std::optional<Dim> ExactQuotient(Dim a, Dim divisor) {
  if (a.is_constant() && divisor.is_constant()) {
    if (a.constant() % divisor.constant() != 0) return std::nullopt;
    return Dim(a.constant() / divisor.constant());
  }
  if (a == divisor) return Dim(1);
  if (IsZero(a)) return Dim(0);
  if (Divides(divisor, a) == Ternary::kYes) return FloorDiv(a, divisor);
  return std::nullopt;
}

// A non-sum as a sum of one term.
Terms TermsOf(Index n) {
  if (n->kind == Kind::kSum) return n->terms;
  return {{n, 1}};
}
Dim AddendOf(Index n) { return n->kind == Kind::kSum ? n->addend : Dim(0); }

}  // namespace

std::string Access::ToString() const {
  switch (kind) {
    case Kind::kBroadcast:
      return "broadcast";
    case Kind::kContiguous:
      return "contiguous";
    case Kind::kStrided:
      return absl::StrCat("strided(", stride.ToString(), ")");
    case Kind::kGathered:
      return "gathered";
  }
  return "";
}

Index IndexSpace::Intern(IndexNode node) {
  std::string key = KeyOf(node);
  auto [it, inserted] = interned_.try_emplace(std::move(key), nullptr);
  if (!inserted) return it->second;
  node.id = static_cast<int>(nodes_.size());
  nodes_.push_back(std::move(node));
  return it->second = &nodes_.back();
}

Index IndexSpace::Var(Dim extent) {
  TENON_CHECK(num_vars_ < kMaxVars, "too many loop variables in one kernel");
  IndexNode n{.kind = Kind::kVar};
  n.var = num_vars_++;
  n.deps = uint64_t{1} << n.var;
  n.low = 0;
  n.high = extent - 1;
  n.bounded = true;
  return Intern(std::move(n));
}

Index IndexSpace::Constant(Dim value) {
  IndexNode n{.kind = Kind::kSum};
  n.addend = n.low = n.high = value;
  n.bounded = true;
  return Intern(std::move(n));
}

Index IndexSpace::Runtime(const Instruction* producer, IndexTuple at, std::optional<Dim> max) {
  IndexNode n{.kind = Kind::kRuntime};
  n.producer = producer;
  for (Index i : at) n.deps |= i->deps;
  n.at = std::move(at);
  n.bounded = max.has_value();
  if (max) n.high = *max;
  return Intern(std::move(n));
}

Index IndexSpace::MakeSum(Terms terms, Dim addend) {
  auto normalize = [&terms] {
    std::sort(terms.begin(), terms.end(),
              [](const auto& a, const auto& b) { return a.node->id < b.node->id; });
    Terms merged;
    for (const auto& t : terms) {
      if (!merged.empty() && merged.back().node == t.node) {
        merged.back().coefficient += t.coefficient;
      } else {
        merged.push_back(t);
      }
    }
    terms.clear();
    for (const auto& t : merged) {
      if (!IsZero(t.coefficient)) terms.push_back(t);
    }
  };
  normalize();
  // c * mod(y, D) + c * D * floordiv(y, D) = c * y.
  auto recombine = [&]() -> bool {
    for (size_t m = 0; m < terms.size(); ++m) {
      if (terms[m].node->kind != Kind::kMod) continue;
      const IndexNode& mod = *terms[m].node;
      const Dim c = terms[m].coefficient;
      const Index quotient = FloorDiv(mod.inner, mod.divisor);
      for (size_t q = 0; q < terms.size(); ++q) {
        if (terms[q].node != quotient || !(terms[q].coefficient == c * mod.divisor)) continue;
        Terms rest;
        for (size_t i = 0; i < terms.size(); ++i) {
          if (i != m && i != q) rest.push_back(terms[i]);
        }
        for (const auto& t : TermsOf(mod.inner)) rest.push_back({t.node, t.coefficient * c});
        addend += AddendOf(mod.inner) * c;
        terms = std::move(rest);
        return true;
      }
    }
    return false;
  };
  while (recombine()) normalize();
  if (terms.size() == 1 && IsZero(addend) && terms[0].coefficient == Dim(1)) return terms[0].node;
  IndexNode n{.kind = Kind::kSum};
  n.addend = n.low = n.high = addend;
  n.bounded = true;
  for (const auto& t : terms) {
    n.deps |= t.node->deps;
    if (!t.node->bounded) n.bounded = false;
    if (!n.bounded) continue;
    if (IsNonNegative(t.coefficient)) {
      n.low += t.node->low * t.coefficient;
      n.high += t.node->high * t.coefficient;
    } else if (IsNegative(t.coefficient)) {
      n.low += t.node->high * t.coefficient;
      n.high += t.node->low * t.coefficient;
    } else {
      n.bounded = false;
    }
  }
  n.terms = std::move(terms);
  return Intern(std::move(n));
}

Index IndexSpace::Combine(Index a, Dim ca, Index b, Dim cb) {
  Terms terms;
  for (const auto& t : TermsOf(a)) terms.push_back({t.node, t.coefficient * ca});
  for (const auto& t : TermsOf(b)) terms.push_back({t.node, t.coefficient * cb});
  return MakeSum(std::move(terms), AddendOf(a) * ca + AddendOf(b) * cb);
}

Index IndexSpace::FloorDiv(Index a, Dim divisor) {
  if (divisor == Dim(1)) return a;
  if (InRange(a, divisor)) return Constant(0);
  if (a->kind == Kind::kFloorDiv) return FloorDiv(a->inner, a->divisor * divisor);
  // Terms with a coefficient that the divisor divides come out: floordiv(D*x + r, D) = x +
  // floordiv(r, D).
  Terms out, rest;
  for (const auto& t : TermsOf(a)) {
    if (std::optional<Dim> q = ExactQuotient(t.coefficient, divisor)) {
      out.push_back({t.node, *q});
    } else {
      rest.push_back(t);
    }
  }
  Dim addend = AddendOf(a), out_addend = 0;
  if (addend.is_constant() && divisor.is_constant()) {
    int64_t q = addend.constant() / divisor.constant();
    if (addend.constant() % divisor.constant() < 0) --q;
    out_addend = q;
    addend = addend.constant() - q * divisor.constant();
  } else if (std::optional<Dim> q = ExactQuotient(addend, divisor)) {
    out_addend = *q;
    addend = 0;
  }
  if (!out.empty() || !IsZero(out_addend)) {
    Index remainder = FloorDiv(MakeSum(std::move(rest), addend), divisor);
    return Add(MakeSum(std::move(out), out_addend), remainder);
  }
  // A common factor of coefficients and the divisor cancels; what remains below it does not matter.
  for (const auto& t : rest) {
    const Dim g = t.coefficient;
    if (!IsNonNegative(g) || g == Dim(1)) continue;
    std::optional<Dim> smaller = ExactQuotient(divisor, g);
    if (!smaller || !addend.is_constant() || (!g.is_constant() && !IsZero(addend))) continue;
    Terms scaled, below;
    for (const auto& u : rest) {
      std::optional<Dim> q = ExactQuotient(u.coefficient, g);
      if (q) scaled.push_back({u.node, *q});
      else below.push_back(u);
    }
    // What is left of the sum is less than the factor.
    if (!below.empty() && !(IsZero(addend) && InRange(MakeSum(std::move(below), 0), g))) continue;
    Dim scaled_addend = IsZero(addend) ? Dim(0) : tenon::FloorDiv(addend, g);
    return FloorDiv(MakeSum(std::move(scaled), scaled_addend), *smaller);
  }
  IndexNode n{.kind = Kind::kFloorDiv};
  n.inner = a;
  n.divisor = divisor;
  n.deps = a->deps;
  n.bounded = a->bounded && a->low.is_constant() && a->high.is_constant() && divisor.is_constant();
  if (n.bounded) {
    n.low = tenon::FloorDiv(a->low, divisor);
    n.high = tenon::FloorDiv(a->high, divisor);
  } else if (a->bounded && IsNonNegative(a->low) && IsNonNegative(a->high)) {
    n.bounded = true;
    n.low = 0;
    n.high = tenon::FloorDiv(a->high, divisor);
  }
  return Intern(std::move(n));
}

Index IndexSpace::Mod(Index a, Dim divisor) {
  if (divisor == Dim(1)) return Constant(0);
  if (InRange(a, divisor)) return a;
  Terms rest;
  for (const auto& t : TermsOf(a)) {
    if (!ExactQuotient(t.coefficient, divisor)) rest.push_back(t);
  }
  Dim addend = AddendOf(a);
  if (addend.is_constant() && divisor.is_constant()) {
    addend = tenon::Mod(addend, divisor);
  } else if (ExactQuotient(addend, divisor)) {
    addend = 0;
  }
  Index reduced = MakeSum(std::move(rest), addend);
  if (reduced != a) return Mod(reduced, divisor);
  if (a->kind == Kind::kMod && ExactQuotient(a->divisor, divisor)) return Mod(a->inner, divisor);
  if (a->kind == Kind::kSum && IsZero(a->addend) &&
      a->terms.size() == 1) {  // mod(g*x, g*k) = g*mod(x, k)
    const Dim g = a->terms[0].coefficient;
    if (IsNonNegative(g)) {
      if (std::optional<Dim> k = ExactQuotient(divisor, g))
        return Multiply(Mod(a->terms[0].node, *k), g);
    }
  }
  IndexNode n{.kind = Kind::kMod};
  n.inner = a;
  n.divisor = divisor;
  n.deps = a->deps;
  n.bounded = true;
  n.low = 0;
  n.high = divisor - 1;
  return Intern(std::move(n));
}

Index IndexSpace::Linear(absl::Span<const Index> index, absl::Span<const Dim> strides) {
  TENON_CHECK(index.size() == strides.size());
  Terms terms;
  Dim addend = 0;
  for (size_t i = 0; i < index.size(); ++i) {
    if (IsZero(strides[i])) continue;
    for (const auto& t : TermsOf(index[i])) terms.push_back({t.node, t.coefficient * strides[i]});
    addend += AddendOf(index[i]) * strides[i];
  }
  return MakeSum(std::move(terms), addend);
}

IndexTuple IndexSpace::Delinearize(Index linear, absl::Span<const Dim> dims) {
  IndexTuple index(dims.size());
  if (std::find(dims.begin(), dims.end(), Dim(0)) != dims.end()) {  // nothing is ever read
    std::fill(index.begin(), index.end(), Constant(0));
    return index;
  }
  Dim stride = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    if (KnownOne(dims[i])) {
      index[i] = Constant(0);
      continue;
    }
    Index q = FloorDiv(linear, stride);
    bool outermost = true;
    for (size_t j = 0; j < i; ++j) outermost &= KnownOne(dims[j]);
    index[i] = outermost ? q : Mod(q, dims[i]);
    stride *= dims[i];
  }
  return index;
}

IndexTuple IndexSpace::Reshape(absl::Span<const Index> index, absl::Span<const Dim> from,
                               absl::Span<const Dim> to) {
  IndexTuple out;
  if (std::find(from.begin(), from.end(), Dim(0)) != from.end())
    return IndexTuple(to.size(), Constant(0));
  // Groups of dims with equal products are independent: no division crosses them.
  size_t f = 0, t = 0;
  while (t < to.size() || f < from.size()) {
    const size_t f0 = f, t0 = t;
    Dim pf = 1, pt = 1;
    if (f < from.size()) pf *= from[f++];
    if (t < to.size()) pt *= to[t++];
    while (!KnownEqual(pf, pt) && (f < from.size() || t < to.size())) {
      // Of [8*s] and [8,s] it is not known whether 8 is less.
      const bool more_to = KnownLess(pt, pf) || (!IsZero(pt) && ExactQuotient(pf, pt));
      const bool grow_from = t == to.size() || (f < from.size() && !more_to);
      if (grow_from) {
        pf *= from[f++];
      } else {
        pt *= to[t++];
      }
    }
    // Trailing ones belong to the group before them, so that it is not empty.
    while (f < from.size() && KnownOne(from[f])) ++f;
    absl::Span<const Dim> group = from.subspan(f0, f - f0);
    std::vector<Dim> strides(group.size(), 1);
    for (size_t i = group.size(); i-- > 1;) strides[i - 1] = strides[i] * group[i];
    Index linear = Linear(index.subspan(f0, f - f0), strides);
    for (Index i : Delinearize(linear, to.subspan(t0, t - t0))) out.push_back(i);
  }
  return out;
}

std::optional<bool> Decide(const IndexBound& bound) {
  const IndexNode& e = *bound.index;
  if (!e.bounded) return std::nullopt;
  if (InRange(bound.index, bound.size)) return true;
  if (KnownLess(e.high, 0)) return false;
  if (KnownLess(bound.size - 1, e.low)) return false;
  return std::nullopt;
}

Access AccessAlong(Index offset, int var) {
  if (!offset->DependsOn(var)) return {Access::Kind::kBroadcast};
  Dim stride = 0;
  for (const auto& t : TermsOf(offset)) {
    if (!t.node->DependsOn(var)) continue;
    if (t.node->kind != Kind::kVar) return {Access::Kind::kGathered};
    stride = t.coefficient;
  }
  return {stride == Dim(1) ? Access::Kind::kContiguous : Access::Kind::kStrided, stride};
}

std::string ToString(Index n) {
  switch (n->kind) {
    case Kind::kVar:
      return absl::StrCat("d", n->var);
    case Kind::kFloorDiv:
      return absl::StrCat("floordiv(", ToString(n->inner), ", ", n->divisor.ToString(), ")");
    case Kind::kMod:
      return absl::StrCat("mod(", ToString(n->inner), ", ", n->divisor.ToString(), ")");
    case Kind::kRuntime: {
      std::vector<std::string> at;
      for (Index i : n->at) at.push_back(ToString(i));
      return absl::StrCat("%", n->producer->name(), "[", absl::StrJoin(at, ", "), "]");
    }
    case Kind::kSum: {
      std::vector<std::string> parts;
      for (const auto& t : n->terms) {
        std::string c = t.coefficient.ToString();
        if (!t.coefficient.is_constant() && c.find_first_of("+-") != std::string::npos)
          c = absl::StrCat("(", c, ")");
        parts.push_back(t.coefficient == Dim(1) ? ToString(t.node)
                                                : absl::StrCat(ToString(t.node), "*", c));
      }
      if (!IsZero(n->addend) || parts.empty()) parts.push_back(n->addend.ToString());
      return absl::StrJoin(parts, " + ");
    }
  }
  return "";
}

std::string ToString(absl::Span<const Index> index) {
  return absl::StrCat(
      "(",
      absl::StrJoin(index, ", ", [](std::string* s, Index i) { absl::StrAppend(s, ToString(i)); }),
      ")");
}

bool ReadsMemory(Index e) {
  switch (e->kind) {
    case IndexNode::Kind::kVar:
      return false;
    case IndexNode::Kind::kRuntime:
      return true;
    case IndexNode::Kind::kSum:
      return std::any_of(e->terms.begin(), e->terms.end(), [](const IndexNode::Term& t) { return ReadsMemory(t.node); });
    case IndexNode::Kind::kFloorDiv:
    case IndexNode::Kind::kMod:
      return ReadsMemory(e->inner);
  }
  return true;
}

}  // namespace tenon
