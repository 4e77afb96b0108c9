// Maximum flow and minimum cut. Dinic's algorithm (Dinitz 1970): the graphs of a joint forward and backward are sparse with short
// paths between what can't be recomputed and what the backward reads, so few phases are enough, and it needs no tuning.
#ifndef TENON_TORCH_PLUGIN_ATEN_PARTITION_MAX_FLOW_H_
#define TENON_TORCH_PLUGIN_ATEN_PARTITION_MAX_FLOW_H_

#include <cstdint>
#include <vector>

namespace tenon::aten {

// More than all finite capacities together.
inline constexpr int64_t kUnbounded = int64_t{1} << 60;

class FlowNetwork {
 public:
  explicit FlowNetwork(int vertices) : first_(vertices, -1) {}

  void AddEdge(int from, int to, int64_t capacity);

  // Sends as much as goes. kUnbounded where nothing finite lies between the two. Called once.
  int64_t Maximize(int source, int sink);

  // After Maximize: the vertices from which the sink can still be reached. Of all minimum cuts it is the nearest to the sink.
  std::vector<bool> SinkSide(int sink) const;

 private:
  struct Edge {
    int to, next;  // next: of those that leave the same vertex
    int64_t room;
  };
  // Distances to the sink, as far as the source's; whether the source has one.
  bool Layer(int source, int sink);
  int64_t Augment(int source, int sink);

  std::vector<int> first_, level_, current_, queue_, path_;
  std::vector<Edge> edges_;  // an edge and its reverse are neighbours: e ^ 1
};

}  // namespace tenon::aten

#endif  // TENON_TORCH_PLUGIN_ATEN_PARTITION_MAX_FLOW_H_
