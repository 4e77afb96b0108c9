// Matching of two modules' computations and instructions. Private to tools/lab/diff/.
#pragma once

#include "absl/container/flat_hash_map.h"
#include "hlo/module.h"

namespace tenon::lab {

class Matching {
 public:
  Matching(const Module& a, const Module& b);

  const Computation* OfA(const Computation* c) const { return Find(computations_, c); }
  const Instruction* OfA(const Instruction* i) const { return Find(instructions_, i); }
  bool MatchedB(const Computation* c) const { return computations_back_.contains(c); }
  bool MatchedB(const Instruction* i) const { return instructions_back_.contains(i); }

 private:
  template <typename Map, typename Key>
  static Key Find(const Map& map, Key key) {
    auto it = map.find(key);
    return it == map.end() ? nullptr : it->second;
  }
  using Hashes = absl::flat_hash_map<const Instruction*, uint64_t>;
  using List = std::vector<const Instruction*>;

  void HashAll(const Module& m);
  uint64_t OwnHash(const Instruction& i) const;
  void MatchComputations(const Module& a, const Module& b);
  void MatchInstructions(const Computation& a, const Computation& b);
  void MatchEqual(const List& a, const List& b, const Hashes& hashes);
  void MatchNames(const List& a, const List& b);
  void MatchNeighbours();
  void MatchKinds(const List& a, const List& b);
  bool Free(const Instruction* a, const Instruction* b) const {
    return !instructions_.contains(a) && !instructions_back_.contains(b);
  }
  void Pair(const Instruction* a, const Instruction* b);
  void Pair(const Computation* a, const Computation* b);

  Hashes below_, above_;  // structure of the operands' cone, of the users' cone
  absl::flat_hash_map<const Computation*, uint64_t> structure_;
  absl::flat_hash_map<const Computation*, const Computation*> computations_, computations_back_;
  absl::flat_hash_map<const Instruction*, const Instruction*> instructions_, instructions_back_;
  std::vector<std::pair<const Instruction*, const Instruction*>>
      work_;  // paired, neighbours not looked at
};

}  // namespace tenon::lab
