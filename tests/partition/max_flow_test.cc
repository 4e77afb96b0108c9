#include "torch_plugin/aten/partition/max_flow.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace tenon::aten {
namespace {

struct Edge {
  int from, to;
  int64_t capacity;
};

FlowNetwork Make(int vertices, const std::vector<Edge>& edges) {
  FlowNetwork network(vertices);
  for (const Edge& e : edges) network.AddEdge(e.from, e.to, e.capacity);
  return network;
}

int64_t Across(const std::vector<Edge>& edges, const std::vector<bool>& sink_side) {
  int64_t sum = 0;
  for (const Edge& e : edges) sum += !sink_side[e.from] && sink_side[e.to] ? e.capacity : 0;
  return sum;
}

// The cheapest of all cuts between 0 and 1.
int64_t Cheapest(int vertices, const std::vector<Edge>& edges) {
  int64_t best = kUnbounded;
  for (unsigned set = 0; set < 1u << (vertices - 2); ++set) {
    std::vector<bool> sink_side = {false, true};
    for (int v = 2; v < vertices; ++v) sink_side.push_back((set >> (v - 2) & 1) != 0);
    best = std::min(best, Across(edges, sink_side));
  }
  return best;
}

TEST(MaxFlow, IsTheCheapestCut) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const int vertices = 3 + static_cast<int>(random() % 8);
    std::vector<Edge> edges;
    for (unsigned k = random() % 30; k > 0; --k)
      edges.push_back({static_cast<int>(random() % vertices), static_cast<int>(random() % vertices), random() % 20});
    FlowNetwork network = Make(vertices, edges);
    const int64_t flow = network.Maximize(0, 1);
    ASSERT_EQ(flow, Cheapest(vertices, edges)) << "round " << round;
    const std::vector<bool> sink_side = network.SinkSide(1);
    EXPECT_FALSE(sink_side[0]);
    EXPECT_TRUE(sink_side[1]);
    EXPECT_EQ(Across(edges, sink_side), flow) << "round " << round;
  }
}

TEST(MaxFlow, OfEqualCutsTheOneNearestToTheSink) {
  FlowNetwork network = Make(4, {{0, 2, 5}, {2, 3, 5}, {3, 1, 5}});
  EXPECT_EQ(network.Maximize(0, 1), 5);
  EXPECT_EQ(network.SinkSide(1), (std::vector<bool>{false, true, false, false}));
}

TEST(MaxFlow, NothingFiniteBetween) {
  EXPECT_EQ(Make(3, {{0, 2, kUnbounded}, {2, 1, kUnbounded}}).Maximize(0, 1), kUnbounded);
  EXPECT_EQ(Make(3, {{0, 2, kUnbounded}}).Maximize(0, 1), 0);
}

TEST(MaxFlow, LongChains) {
  std::vector<Edge> edges = {{0, 2, 3}};
  const int last = 200'000;
  for (int v = 2; v < last; ++v) edges.push_back({v, v + 1, v == 1000 ? 2 : 3});
  edges.push_back({last, 1, 3});
  FlowNetwork network = Make(last + 1, edges);
  EXPECT_EQ(network.Maximize(0, 1), 2);
  EXPECT_TRUE(network.SinkSide(1)[1001]);
  EXPECT_FALSE(network.SinkSide(1)[1000]);
}

}  // namespace
}  // namespace tenon::aten
