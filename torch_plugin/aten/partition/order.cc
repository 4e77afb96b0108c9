#include "torch_plugin/aten/partition/order.h"

#include <algorithm>

namespace tenon::aten {

Uses::Uses(const JointGraph& graph) : graph_(&graph), live_(size(), false), returned_(size(), false) {
  for (const auto outputs : {graph.forward_outputs, graph.backward_outputs})
    for (const int n : outputs) returned_[n] = live_[n] = true;
  for (int n = size() - 1; n >= 0; --n) {
    if ((graph.traits[n] & (kInput | kTangent | kForwardOnly)) != 0) live_[n] = true;
    if (!live_[n]) continue;
    for (const int operand : operands(n)) live_[operand] = true;
  }
  user_begin_.assign(size() + 1, 0);
  for (int n = 0; n < size(); ++n)
    if (live_[n])
      for (const int operand : operands(n)) ++user_begin_[operand + 1];
  for (int n = 0; n < size(); ++n) user_begin_[n + 1] += user_begin_[n];
  users_.resize(user_begin_[size()]);
  user_end_.assign(user_begin_.begin(), user_begin_.end() - 1);
  for (int n = 0; n < size(); ++n) {
    if (!live_[n]) continue;
    for (const int operand : operands(n)) {
      int32_t& end = user_end_[operand];
      if (end == user_begin_[operand] || users_[end - 1] != n) users_[end++] = n;
    }
  }
}

namespace {

class Orderer {
 public:
  Orderer(const JointGraph& graph, const Uses& uses, const std::vector<bool>& saved) : graph_(graph), uses_(uses), saved_(saved) {}

  std::string Run(Partition& result);

 private:
  bool Is(int n, uint32_t trait) const { return (graph_.traits[n] & trait) != 0; }
  // Nodes that `roots` need, given the values of `given`.
  std::vector<bool> Needed(std::vector<bool> roots, const std::vector<bool>& given) const;
  std::vector<int32_t> ForwardOrder(const std::vector<bool>& needed) const;
  std::vector<int32_t> BackwardOrder(const std::vector<bool>& needed) const;
  // Puts elements behind their tuples.
  std::vector<int32_t> WithElements(const std::vector<int32_t>& order) const;

  const JointGraph& graph_;
  const Uses& uses_;
  const std::vector<bool>& saved_;
  std::vector<bool> given_;  // to the backward
};

std::string Orderer::Run(Partition& result) {
  const int size = uses_.size();
  given_ = saved_;
  for (int n = 0; n < size; ++n)
    if (Is(n, kTangent)) given_[n] = true;
  std::vector<bool> roots(size, false);
  for (const int n : graph_.backward_outputs) roots[n] = true;
  const std::vector<bool> backward = Needed(roots, given_);
  for (int n = 0; n < size; ++n) {
    if (!backward[n]) continue;
    if (saved_[n]) result.saved.push_back(n);
    else if (Is(n, kInput)) return "the backward needs an input that isn't saved";
    else if (Is(n, kForwardOnly)) return "the backward needs what is computed in the forward alone";
  }
  roots.assign(size, false);
  for (const int n : graph_.forward_outputs) roots[n] = true;
  for (const int n : result.saved) roots[n] = true;
  for (int n = 0; n < size; ++n)
    if (Is(n, kForwardOnly)) roots[n] = true;
  const std::vector<bool> forward = Needed(roots, std::vector<bool>(size, false));
  for (int n = 0; n < size; ++n)
    if (forward[n] && Is(n, kTangent)) return "the forward needs a gradient";
  result.forward = WithElements(ForwardOrder(forward));
  result.backward = WithElements(BackwardOrder(backward));
  return "";
}

std::vector<bool> Orderer::Needed(std::vector<bool> roots, const std::vector<bool>& given) const {
  for (int n = uses_.size() - 1; n >= 0; --n) {
    if (!roots[n] || given[n]) continue;
    for (const int operand : uses_.operands(n)) roots[operand] = true;
  }
  return roots;
}

std::vector<int32_t> Orderer::ForwardOrder(const std::vector<bool>& needed) const {
  std::vector<int32_t> order;
  for (int n = 0; n < uses_.size(); ++n)
    if (needed[n] && !Is(n, kInput)) order.push_back(n);
  return order;
}

std::vector<int32_t> Orderer::BackwardOrder(const std::vector<bool>& needed) const {
  std::vector<bool> after(uses_.size(), false), done = given_;
  std::vector<int32_t> order, stack, missing;
  for (int n = 0; n < uses_.size(); ++n) {
    after[n] = Is(n, kTangent);
    for (const int operand : uses_.operands(n)) after[n] = after[n] || after[operand];
  }
  const auto add = [&](int root) {
    stack.assign(1, root);
    missing.clear();
    while (!stack.empty()) {
      const int n = stack.back();
      stack.pop_back();
      if (done[n]) continue;
      done[n] = true;
      missing.push_back(n);
      for (const int operand : uses_.operands(n)) stack.push_back(operand);
    }
    std::sort(missing.begin(), missing.end());
    order.insert(order.end(), missing.begin(), missing.end());
  };
  for (int n = 0; n < uses_.size(); ++n)
    if (needed[n] && after[n]) add(n);
  for (int n = 0; n < uses_.size(); ++n)
    if (needed[n]) add(n);  // gradients that follow from no tangent
  return order;
}

std::vector<int32_t> Orderer::WithElements(const std::vector<int32_t>& order) const {
  std::vector<bool> here(uses_.size(), false);
  for (const int n : order) here[n] = true;
  const auto is_moved = [&](int n) { return Is(n, kGetitem) && uses_.operands(n).size() == 1 && here[uses_.operands(n)[0]]; };
  std::vector<int32_t> moved, stack;
  for (const int n : order) {
    if (is_moved(n)) continue;
    stack.assign(1, n);
    while (!stack.empty()) {
      const int next = stack.back();
      stack.pop_back();
      moved.push_back(next);
      const auto users = uses_.users(next);
      for (auto user = users.rbegin(); user != users.rend(); ++user)
        if (here[*user] && is_moved(*user)) stack.push_back(*user);
    }
  }
  return moved;
}

}  // namespace

std::string OrderParts(const JointGraph& graph, const Uses& uses, const std::vector<bool>& saved, Partition& result) {
  return Orderer(graph, uses, saved).Run(result);
}

}  // namespace tenon::aten
