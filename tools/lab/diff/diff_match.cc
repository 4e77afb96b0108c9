#include "tools/lab/diff/diff_match.h"

#include <algorithm>

namespace tenon::lab {
namespace {

template <typename T>
uint64_t HashOfValue(const T& v) {
  return absl::HashOf(v);
}

uint64_t HashOfDims(absl::Span<const Dim> dims) {
  uint64_t h = dims.size();
  for (Dim d : dims)
    h = absl::HashOf(h, d.is_constant() ? absl::HashOf(d.constant()) : absl::HashOf(d.ToString()));
  return h;
}

uint64_t HashOfShape(const Shape& s) {
  uint64_t h = absl::HashOf(static_cast<int>(s.element_type()), HashOfDims(s.dims()));
  for (const Shape& e : s.elements()) h = absl::HashOf(h, HashOfShape(e));
  return h;
}

// Of those attributes that tell instructions apart cheaply; equality is looked at later.
uint64_t HashOfAttribute(const AttrValue& value) {
  if (const auto* v = std::get_if<int64_t>(&value)) return absl::HashOf(*v);
  if (const auto* v = std::get_if<std::string>(&value)) return absl::HashOf(*v);
  if (const auto* v = std::get_if<std::vector<int64_t>>(&value)) return absl::HashOf(*v);
  if (const auto* v = std::get_if<std::vector<Dim>>(&value)) return HashOfDims(*v);
  if (const auto* v = std::get_if<SliceSpec>(&value))
    return absl::HashOf(HashOfDims(v->starts), HashOfDims(v->limits), v->strides);
  if (const auto* v = std::get_if<PaddingConfig>(&value)) {
    uint64_t h = 0;
    for (const PaddingDim& d : v->dims) h = absl::HashOf(h, d.low, d.high, d.interior);
    return h;
  }
  return value.index();
}

// Pairs the k-th with the k-th of what has one key, where both sides have as many.
template <typename Key, typename KeyOf, typename Visit>
void PairByKey(const std::vector<const Instruction*>& a, const std::vector<const Instruction*>& b,
               KeyOf&& key, Visit&& visit) {
  absl::flat_hash_map<Key,
                      std::pair<std::vector<const Instruction*>, std::vector<const Instruction*>>>
      buckets;
  std::vector<Key> order;
  for (const Instruction* i : a) {
    auto [it, fresh] = buckets.try_emplace(key(i));
    if (fresh) order.push_back(it->first);
    it->second.first.push_back(i);
  }
  for (const Instruction* i : b) {
    if (auto it = buckets.find(key(i)); it != buckets.end()) it->second.second.push_back(i);
  }
  for (const Key& k : order) visit(buckets.at(k).first, buckets.at(k).second);
}

}  // namespace

Matching::Matching(const Module& a, const Module& b) {
  HashAll(a);
  HashAll(b);
  MatchComputations(a, b);
  // Callers first, so that a callee that its caller's match names is found.
  std::vector<Computation*> order = a.computations();
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    if (const Computation* other = OfA(*it)) MatchInstructions(**it, *other);
  }
}

uint64_t Matching::OwnHash(const Instruction& i) const {
  uint64_t h = absl::HashOf(static_cast<int>(i.opcode()), HashOfShape(i.shape()));
  for (const auto& [attr, value] : i.attrs()) {
    if (attr == Attr::kBackendConfig || attr == Attr::kFrontendAttributes ||
        attr == Attr::kSharding)
      continue;
    h = absl::HashOf(h, static_cast<int>(attr), HashOfAttribute(value));
  }
  for (const Computation* c : i.called_computations()) {
    auto it = structure_.find(c);
    h = absl::HashOf(h, it == structure_.end() ? 0 : it->second);
  }
  if (i.opcode() == Opcode::kParameter) h = absl::HashOf(h, i.parameter_number());
  if (i.has_literal()) h = absl::HashOf(h, i.literal().Hash());
  return h;
}

void Matching::HashAll(const Module& m) {
  for (const Computation* c : m.computations()) {
    const std::vector<Instruction*> order = c->PostOrder();
    absl::flat_hash_map<const Instruction*, uint64_t> own;
    for (const Instruction* i : order) {
      uint64_t h = own[i] = OwnHash(*i);
      for (const Instruction* o : i->operands()) h = absl::HashOf(h, below_.at(o));
      below_[i] = h;
    }
    for (auto it = order.rbegin(); it != order.rend(); ++it) {
      const Instruction* i = *it;
      // Users in any order: the sum of what each contributes.
      uint64_t users = i == c->root() ? 1 : 0;
      for (const Instruction* u : i->users()) {
        for (int64_t k = 0; k < u->operand_count(); ++k) {
          if (u->operand(k) == i) users += absl::HashOf(above_.at(u), k);
        }
      }
      above_[i] = absl::HashOf(own.at(i), users);
    }
    structure_[c] = c->root() == nullptr ? 0 : absl::HashOf(below_.at(c->root()), order.size());
  }
}

void Matching::Pair(const Computation* a, const Computation* b) {
  if (computations_.contains(a) || computations_back_.contains(b)) return;
  computations_[a] = b;
  computations_back_[b] = a;
}

void Matching::MatchComputations(const Module& a, const Module& b) {
  const std::vector<Computation*> from = a.computations(), to = b.computations();
  if (a.entry() != nullptr && b.entry() != nullptr) Pair(a.entry(), b.entry());
  auto each = [&](auto&& fits) {
    absl::flat_hash_map<uint64_t, std::vector<const Computation*>> found;
    for (const Computation* c : to) {
      if (!computations_back_.contains(c)) found[fits(*c)].push_back(c);
    }
    for (const Computation* c : from) {
      if (computations_.contains(c)) continue;
      auto it = found.find(fits(*c));
      if (it == found.end()) continue;
      for (const Computation* candidate : it->second) {
        if (computations_back_.contains(candidate)) continue;
        Pair(c, candidate);
        break;
      }
    }
  };
  each([&](const Computation& c) { return absl::HashOf(structure_.at(&c), c.name()); });
  each([&](const Computation& c) { return structure_.at(&c); });
  each([&](const Computation& c) { return absl::HashOf(c.name()); });
}

void Matching::Pair(const Instruction* a, const Instruction* b) {
  instructions_[a] = b;
  instructions_back_[b] = a;
  work_.emplace_back(a, b);
  // Computations that changed too much to be found are those that matched instructions call.
  const std::vector<Computation*> x = a->called_computations(), y = b->called_computations();
  for (size_t k = 0; k < x.size() && k < y.size(); ++k) Pair(x[k], y[k]);
}

void Matching::MatchEqual(const List& a, const List& b, const Hashes& hashes) {
  PairByKey<uint64_t>(
      a, b, [&](const Instruction* i) { return hashes.at(i); },
      [&](List x, List y) {
        std::erase_if(x, [&](const Instruction* i) { return instructions_.contains(i); });
        std::erase_if(y, [&](const Instruction* i) { return instructions_back_.contains(i); });
        // Twins: those of one name first. The k-th with the k-th is right only where none came or
        // went.
        absl::flat_hash_map<std::string_view, const Instruction*> by_name;
        for (const Instruction* i : y) by_name[i->name()] = i;
        for (const Instruction* i : x) {
          auto it = by_name.find(i->name());
          if (it != by_name.end() && Free(i, it->second)) Pair(i, it->second);
        }
        if (x.size() != y.size()) return;
        std::erase_if(x, [&](const Instruction* i) { return instructions_.contains(i); });
        std::erase_if(y, [&](const Instruction* i) { return instructions_back_.contains(i); });
        for (size_t k = 0; k < x.size(); ++k) Pair(x[k], y[k]);
      });
}

void Matching::MatchNames(const List& a, const List& b) {
  absl::flat_hash_map<std::string_view, const Instruction*> by_name;
  for (const Instruction* i : b) by_name[i->name()] = i;
  for (const Instruction* i : a) {
    auto it = by_name.find(i->name());
    if (it == by_name.end() || !Free(i, it->second)) continue;
    if (it->second->opcode() == i->opcode()) Pair(i, it->second);
  }
}

// Operands at one place, and users that take them at one place, of what is paired.
void Matching::MatchNeighbours() {
  while (!work_.empty()) {
    const auto [a, b] = work_.back();
    work_.pop_back();
    for (int64_t k = 0; k < std::min(a->operand_count(), b->operand_count()); ++k) {
      const Instruction *x = a->operand(k), *y = b->operand(k);
      if (x->opcode() == y->opcode() && Free(x, y)) Pair(x, y);
    }
    auto key = [](const Instruction* of, const Instruction* user) {
      const auto operands = user->operands();
      const int64_t place = std::find(operands.begin(), operands.end(), of) - operands.begin();
      return absl::HashOf(static_cast<int>(user->opcode()), place, HashOfShape(user->shape()));
    };
    absl::flat_hash_map<uint64_t, List> users;
    for (const Instruction* u : b->users()) {
      if (!instructions_back_.contains(u)) users[key(b, u)].push_back(u);
    }
    for (const Instruction* u : a->users()) {
      if (instructions_.contains(u)) continue;
      auto it = users.find(key(a, u));
      if (it == users.end()) continue;
      auto free = std::find_if(it->second.begin(), it->second.end(),
                               [&](const Instruction* v) { return Free(u, v); });
      if (free != it->second.end()) Pair(u, *free);
    }
  }
}

// What is left, by opcode and shape, in order.
void Matching::MatchKinds(const List& a, const List& b) {
  auto kind = [](const Instruction* i) {
    return absl::HashOf(static_cast<int>(i->opcode()), HashOfShape(i->shape()));
  };
  PairByKey<uint64_t>(a, b, kind, [&](const List& x, const List& y) {
    size_t next = 0;
    for (const Instruction* i : x) {
      if (instructions_.contains(i)) continue;
      while (next < y.size() && instructions_back_.contains(y[next])) ++next;
      if (next == y.size()) return;
      Pair(i, y[next]);
    }
  });
}

void Matching::MatchInstructions(const Computation& a, const Computation& b) {
  const std::vector<Instruction*> order_a = a.PostOrder(), order_b = b.PostOrder();
  const List x(order_a.begin(), order_a.end()), y(order_b.begin(), order_b.end());
  MatchEqual(x, y, below_);
  MatchEqual(x, y, above_);
  MatchNames(x, y);
  if (a.root() != nullptr && b.root() != nullptr && Free(a.root(), b.root()) &&
      a.root()->opcode() == b.root()->opcode()) {
    Pair(a.root(), b.root());
  }
  MatchNeighbours();
  MatchKinds(x, y);
  MatchNeighbours();
  // A name that stands for another opcode now.
  absl::flat_hash_map<std::string_view, const Instruction*> by_name;
  for (const Instruction* i : y) by_name[i->name()] = i;
  for (const Instruction* i : x) {
    auto it = by_name.find(i->name());
    if (it != by_name.end() && Free(i, it->second)) Pair(i, it->second);
  }
  work_.clear();
}

}  // namespace tenon::lab
