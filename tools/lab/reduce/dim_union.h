// Which dimensions of a module must have one size: union-find over the dims of all leaves of all
// instructions, with a rule per opcode. Private to the reducer.
#pragma once

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "hlo/module.h"

namespace tenon::lab {

class DimUnion {
 public:
  explicit DimUnion(const Module& module);

  struct Node {
    const Instruction* op;
    size_t leaf;
    int64_t dim, size;
  };
  const std::vector<Node>& nodes() const { return nodes_; }
  // The number of the class of a node, or of a dim of a leaf of an instruction's shape.
  int Find(int node);
  int Class(const Instruction* op, size_t leaf, int64_t dim) {
    return Find(first_.at(op)[leaf] + static_cast<int>(dim));
  }

 private:
  friend class DimLinker;
  std::vector<Node> nodes_;
  std::vector<int> parent_;
  absl::flat_hash_map<const Instruction*, std::vector<int>> first_;  // node of dim 0, by leaf
};

}  // namespace tenon::lab
