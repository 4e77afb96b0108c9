// Who reads whom in a joint graph, and in which order forward and backward compute their nodes.
#ifndef TENON_TORCH_PLUGIN_ATEN_PARTITION_ORDER_H_
#define TENON_TORCH_PLUGIN_ATEN_PARTITION_ORDER_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "torch_plugin/aten/partition/partition.h"

namespace tenon::aten {

// Readers of each node, in order and each once; dead ones don't count.
class Uses {
 public:
  explicit Uses(const JointGraph& graph);

  int size() const { return static_cast<int>(graph_->traits.size()); }
  std::span<const int32_t> operands(int n) const {
    return graph_->operands.subspan(graph_->operand_begin[n], graph_->operand_begin[n + 1] - graph_->operand_begin[n]);
  }
  std::span<const int32_t> users(int n) const { return std::span(users_).subspan(user_begin_[n], user_end_[n] - user_begin_[n]); }
  bool live(int n) const { return live_[n]; }
  bool returned(int n) const { return returned_[n]; }

 private:
  const JointGraph* graph_;
  std::vector<bool> live_, returned_;
  std::vector<int32_t> users_, user_begin_, user_end_;
};

// Fills in the orders, given what is saved; of that, what the backward reads. The forward is ordered as the graph is. The backward does
// what follows from the tangents, in the graph's order, and computes again what that needs just before it is needed, so that it lives
// shortly. Elements of tuples stand behind their tuple. Returns what is wrong; "": nothing.
std::string OrderParts(const JointGraph& graph, const Uses& uses, const std::vector<bool>& saved, Partition& result);

}  // namespace tenon::aten

#endif  // TENON_TORCH_PLUGIN_ATEN_PARTITION_ORDER_H_
