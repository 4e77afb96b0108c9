#include "torch_plugin/aten/partition/max_flow.h"

#include <algorithm>

namespace tenon::aten {

void FlowNetwork::AddEdge(int from, int to, int64_t capacity) {
  if (capacity <= 0) return;
  edges_.push_back({to, first_[from], capacity});
  first_[from] = static_cast<int>(edges_.size()) - 1;
  edges_.push_back({from, first_[to], 0});
  first_[to] = static_cast<int>(edges_.size()) - 1;
}

int64_t FlowNetwork::Maximize(int source, int sink) {
  int64_t sent = 0;
  while (sent < kUnbounded && Layer(source, sink)) {
    current_ = first_;
    while (const int64_t more = Augment(source, sink)) {
      sent += more;
      if (sent >= kUnbounded) return kUnbounded;
    }
  }
  return std::min(sent, kUnbounded);
}

bool FlowNetwork::Layer(int source, int sink) {
  level_.assign(first_.size(), -1);
  level_[sink] = 0;
  queue_.assign(1, sink);
  for (size_t head = 0; head < queue_.size(); ++head) {
    const int v = queue_[head];
    if (v == source) return true;
    for (int e = first_[v]; e >= 0; e = edges_[e].next) {
      const int from = edges_[e].to;
      if (edges_[e ^ 1].room == 0 || level_[from] >= 0) continue;
      level_[from] = level_[v] + 1;
      queue_.push_back(from);
    }
  }
  return false;
}

// One path of the layered graph, by depth first search without recursion: chains of a model are long.
int64_t FlowNetwork::Augment(int source, int sink) {
  path_.clear();
  int v = source;
  while (v != sink) {
    int& e = current_[v];
    while (e >= 0 && (edges_[e].room == 0 || level_[edges_[e].to] != level_[v] - 1)) e = edges_[e].next;
    if (e >= 0) {
      path_.push_back(e);
      v = edges_[e].to;
      continue;
    }
    if (path_.empty()) return 0;
    level_[v] = -1;  // a dead end of this phase
    v = edges_[path_.back() ^ 1].to;
    path_.pop_back();
  }
  int64_t room = kUnbounded;
  for (const int e : path_) room = std::min(room, edges_[e].room);
  for (const int e : path_) {
    edges_[e].room -= room;
    edges_[e ^ 1].room += room;
  }
  return room;
}

std::vector<bool> FlowNetwork::SinkSide(int sink) const {
  std::vector<bool> reaches(first_.size(), false);
  std::vector<int> queue = {sink};
  reaches[sink] = true;
  for (size_t head = 0; head < queue.size(); ++head)
    for (int e = first_[queue[head]]; e >= 0; e = edges_[e].next) {
      const int from = edges_[e].to;
      if (edges_[e ^ 1].room == 0 || reaches[from]) continue;
      reaches[from] = true;
      queue.push_back(from);
    }
  return reaches;
}

}  // namespace tenon::aten
