#include "torch_plugin/aten/partition/partition.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <set>
#include <utility>

#include "torch_plugin/aten/partition/max_flow.h"
#include "torch_plugin/aten/partition/order.h"

namespace tenon::aten {
namespace {

constexpr int kFar = 1'000'000'000;     // no path to the backward
constexpr int kLongChain = 100;         // nodes of the forward that one chain of fused ones may span
constexpr int kMostDistance = 100;      // further ones weigh as much
constexpr double kPerDistance = 1.1;    // nearer to the backward is lighter
constexpr int64_t kReductionRatio = 4;  // a result this many times smaller than its arguments is saved
constexpr int64_t kExtraWrite = 2;     // to save what would have stayed in registers

class Cutter {
 public:
  explicit Cutter(const JointGraph& graph) : graph_(graph), uses_(graph), size_(uses_.size()) {}

  std::variant<Partition, std::string> Run();

 private:
  bool Is(int n, uint32_t trait) const { return (graph_.traits[n] & trait) != 0; }
  bool IsCall(int n) const { return !Is(n, kInput | kTangent | kConstant); }

  void FindForward();
  void FindBackward();
  void FindDistances();

  bool Fusible(int producer, int consumer) const {
    return Is(consumer, kFusesAnything) || (Is(producer, kFusible) && Is(consumer, kFusible));
  }
  bool MaterializedInBackward(int n) const;
  bool NeverAgain(int n) const;
  void Ban(int n) { banned_[n] = banned_[n] || !Is(n, kView); }
  void BanWhatIsUsedFarApart();
  void BanLongChains();
  int FirstUnfusible(int producer, int limit) const;
  int64_t Weight(int n) const;
  bool Cut();

  const JointGraph& graph_;
  const Uses uses_;
  const int size_;
  std::vector<int> forward_order_;    // place among the nodes that the forward needs; -1: it doesn't
  std::vector<bool> after_tangents_;  // computed of tangents
  std::vector<bool> needed_after_;    // read by the backward's outputs as they are
  std::vector<int> distance_;         // edges to the backward
  std::vector<bool> banned_;          // from being computed again
  std::vector<bool> saved_;
};

std::variant<Partition, std::string> Cutter::Run() {
  FindForward();
  FindBackward();
  if (std::find(after_tangents_.begin(), after_tangents_.end(), true) == after_tangents_.end() && graph_.backward_outputs.empty())
    return "no gradient is asked for";
  FindDistances();
  banned_.assign(size_, false);
  for (int n = 0; n < size_; ++n) {
    if (Is(n, kForwardOnly)) banned_[n] = true;
    else if (!after_tangents_[n] && uses_.live(n) && (Is(n, kInput) || (forward_order_[n] >= 0 && NeverAgain(n)))) Ban(n);
  }
  BanWhatIsUsedFarApart();
  BanLongChains();
  if (!Cut()) return "a value that the backward reads can neither be saved nor be computed again";
  Partition result;
  if (std::string problem = OrderParts(graph_, uses_, saved_, result); !problem.empty()) return problem;
  for (const int n : result.saved)
    if (!Is(n, kStatic)) result.saved_bytes += graph_.bytes[n];
  return result;
}

void Cutter::FindForward() {
  std::vector<bool> needed(size_, false);
  for (const int n : graph_.forward_outputs) needed[n] = true;
  for (int n = size_ - 1; n >= 0; --n) {
    if (Is(n, kForwardOnly | kInput)) needed[n] = true;
    if (!needed[n]) continue;
    for (const int operand : uses_.operands(n)) needed[operand] = true;
  }
  forward_order_.assign(size_, -1);
  for (int n = 0, next = 0; n < size_; ++n)
    if (needed[n]) forward_order_[n] = next++;
}

void Cutter::FindBackward() {
  after_tangents_.assign(size_, false);
  needed_after_.assign(size_, false);
  for (int n = 0; n < size_; ++n) {
    bool after = Is(n, kTangent);
    for (const int operand : uses_.operands(n)) after = after || after_tangents_[operand];
    after_tangents_[n] = after;
  }
  for (const int n : graph_.backward_outputs) needed_after_[n] = !after_tangents_[n];
}

void Cutter::FindDistances() {
  distance_.assign(size_, 0);
  for (int n = size_ - 1; n >= 0; --n) {
    if (forward_order_[n] < 0) continue;
    distance_[n] = kFar;
    for (const int user : uses_.users(n)) distance_[n] = std::min(distance_[n], distance_[user] + 1);
  }
}

// In the backward, somebody who can't be fused with it reads it: computing it again would not be free.
bool Cutter::MaterializedInBackward(int n) const {
  if (Is(n, kView)) return false;
  std::vector<int> stack = {n};
  std::set<int> seen;
  while (!stack.empty()) {
    const int producer = stack.back();
    stack.pop_back();
    if (uses_.returned(producer)) return true;
    for (const int user : uses_.users(producer)) {
      if (forward_order_[user] < 0 && !Fusible(producer, user)) return true;
      if (Is(user, kView) && seen.insert(user).second) stack.push_back(user);
    }
  }
  return false;
}

bool Cutter::NeverAgain(int n) const {
  if (!IsCall(n) || Is(n, kGetitem | kAlwaysFree)) return false;
  return !Is(n, kRecomputable) || MaterializedInBackward(n) || graph_.bytes[n] * kReductionRatio < graph_.argument_bytes[n];
}

// The forward's order of the first reader in the chains behind `producer` that can't be fused with what it reads; at most `limit`.
int Cutter::FirstUnfusible(int producer, int limit) const {
  using Reader = std::pair<int, std::pair<bool, int>>;  // order, fused with what it reads, node
  std::priority_queue<Reader, std::vector<Reader>, std::greater<>> next;
  std::set<Reader> seen;
  const auto push = [&](int user, bool fused) {
    const Reader reader = {forward_order_[user], {fused, user}};
    if (seen.insert(reader).second) next.push(reader);
  };
  for (const int user : uses_.users(producer))
    if (forward_order_[user] >= 0) push(user, true);
  while (!next.empty()) {
    const auto [order, rest] = next.top();
    const auto [fused, node] = rest;
    next.pop();
    if (!fused) return order;
    for (const int user : uses_.users(node))
      if (forward_order_[user] >= 0 && forward_order_[user] <= limit) push(user, Fusible(node, user));
  }
  return limit;
}

// Computed again both here and far behind what can't be fused, a value would be two kernels' work.
void Cutter::BanWhatIsUsedFarApart() {
  for (int n = 0; n < size_; ++n) {
    if (forward_order_[n] < 0) continue;
    int last = -1, count = 0;
    for (const int user : uses_.users(n)) {
      last = std::max(last, forward_order_[user]);
      count += forward_order_[user] >= 0;
    }
    if (count < 2) continue;  // the only reader is no later than itself
    const int first = FirstUnfusible(n, last);
    for (const int user : uses_.users(n))
      if (forward_order_[user] > first && Fusible(n, user)) Ban(user);
  }
}

// No chain of recomputed ones from one end of the model to the other (residual streams).
void Cutter::BanLongChains() {
  std::vector<bool> visited(size_, false);
  using Place = std::pair<int, int>;  // order, node
  for (int start = 0; start < size_; ++start) {
    if (forward_order_[start] < 0) continue;
    std::priority_queue<Place, std::vector<Place>, std::greater<>> chain;
    chain.push({forward_order_[start], start});
    while (!chain.empty()) {
      const int n = chain.top().second;
      chain.pop();
      if (visited[n]) continue;
      visited[n] = true;
      if (forward_order_[n] > forward_order_[start] + kLongChain && chain.empty()) {
        Ban(n);
        break;
      }
      for (const int user : uses_.users(n))
        if (forward_order_[user] >= 0 && Fusible(n, user) && !banned_[user]) chain.push({forward_order_[user], user});
    }
  }
}

int64_t Cutter::Weight(int n) const {
  if (Is(n, kStatic)) return 0;
  if (Is(n, kNoTensor)) return kUnbounded;
  const double distance = std::clamp(distance_[n], 1, kMostDistance);
  const auto weight = static_cast<int64_t>(static_cast<double>(graph_.bytes[n]) * std::pow(kPerDistance, distance));
  bool fused = !Is(n, kInput | kTangent) && !uses_.returned(n);
  for (const int user : uses_.users(n)) fused = fused && Fusible(n, user);
  return fused ? weight * kExtraWrite : weight;
}

// A node is an edge from its "in" to its "out", which is cut where it is saved. The source's side is what the forward computes.
bool Cutter::Cut() {
  const int source = 2 * size_, sink = source + 1;
  const auto in = [](int n) { return 2 * n; };
  const auto out = [](int n) { return 2 * n + 1; };
  FlowNetwork network(2 * size_ + 2);
  for (int n = 0; n < size_; ++n) {
    if (!uses_.live(n)) continue;
    if (banned_[n]) network.AddEdge(source, in(n), kUnbounded);
    if (after_tangents_[n]) {
      network.AddEdge(in(n), sink, kUnbounded);
      continue;
    }
    if (needed_after_[n]) network.AddEdge(out(n), sink, kUnbounded);
    network.AddEdge(in(n), out(n), Weight(n));
    for (const int user : uses_.users(n)) network.AddEdge(out(n), in(user), kUnbounded);
  }
  if (network.Maximize(source, sink) >= kUnbounded) return false;
  const std::vector<bool> later = network.SinkSide(sink);
  saved_.assign(size_, false);
  for (int n = 0; n < size_; ++n) saved_[n] = uses_.live(n) && !after_tangents_[n] && !later[in(n)] && later[out(n)];
  return true;
}

}  // namespace

std::variant<Partition, std::string> PartitionJointGraph(const JointGraph& graph) { return Cutter(graph).Run(); }

}  // namespace tenon::aten
