#include "torch_plugin/aten/partition/partition.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace tenon::aten {
namespace {

constexpr uint32_t kPointwise = kFusible | kRecomputable;
constexpr uint32_t kProduct = 0;  // computed once, fused with nothing
constexpr int64_t kSize = 1024;

// A graph, written down node by node.
struct Graph {
  std::vector<uint32_t> traits;
  std::vector<int64_t> bytes, argument_bytes;
  std::vector<int32_t> begin = {0}, operands, forward, backward;

  int Add(uint32_t trait, const std::vector<int32_t>& reads = {}, int64_t size = kSize) {
    int64_t arguments = 0;
    for (const int32_t n : reads) arguments += bytes[n];
    traits.push_back(trait);
    bytes.push_back(size);
    argument_bytes.push_back(arguments);
    operands.insert(operands.end(), reads.begin(), reads.end());
    begin.push_back(static_cast<int32_t>(operands.size()));
    return static_cast<int>(traits.size()) - 1;
  }
  std::variant<Partition, std::string> Cut() const {
    return PartitionJointGraph({.traits = traits, .bytes = bytes, .argument_bytes = argument_bytes, .operand_begin = begin,
                                .operands = operands, .forward_outputs = forward, .backward_outputs = backward});
  }
  Partition Parts() const { return std::get<Partition>(Cut()); }
  std::string Problem() const { return std::get<std::string>(Cut()); }
};

using Nodes = std::vector<int32_t>;

TEST(Partition, AProductIsSavedAndWhatIsPointwiseOfItComputedAgain) {
  Graph g;
  const int x = g.Add(kInput), w = g.Add(kInput | kStatic), tangent = g.Add(kTangent);
  const int product = g.Add(kProduct, {x, w}), tanh = g.Add(kPointwise, {product}), sigmoid = g.Add(kPointwise, {tanh});
  const int next = g.Add(kProduct, {sigmoid, w});
  const int gradient = g.Add(kProduct, {tangent, w}), slope = g.Add(kPointwise, {gradient, tanh, sigmoid});
  const int grad_x = g.Add(kProduct, {slope, w});
  g.forward = {next};
  g.backward = {grad_x};
  const Partition parts = g.Parts();
  EXPECT_EQ(parts.saved, (Nodes{w, product}));
  EXPECT_EQ(parts.saved_bytes, kSize) << "w lives anyway";
  EXPECT_EQ(parts.forward, (Nodes{product, tanh, sigmoid, next}));
  EXPECT_EQ(parts.backward, (Nodes{gradient, tanh, sigmoid, slope, grad_x})) << "computed again where it is needed";
}

TEST(Partition, WhatTheBackwardReadsByItselfIsNotComputedAgain) {
  Graph g;
  const int x = g.Add(kInput), w = g.Add(kInput | kStatic), tangent = g.Add(kTangent), product = g.Add(kProduct, {x, w});
  const int tanh = g.Add(kPointwise, {product}), out = g.Add(kProduct, {tanh, w});
  const int grad_w = g.Add(kProduct, {tangent, tanh});
  g.forward = {out};
  g.backward = {grad_w};
  EXPECT_EQ(g.Parts().saved, (Nodes{tanh}));
}

TEST(Partition, ASmallResultOfALargeOneIsSaved) {
  Graph g;
  const int x = g.Add(kInput, {}, 64 * kSize), tangent = g.Add(kTangent), sum = g.Add(kPointwise, {x}, kSize);
  const int out = g.Add(kPointwise, {sum}), grad = g.Add(kPointwise, {tangent, sum});
  g.forward = {out};
  g.backward = {grad};
  EXPECT_EQ(g.Parts().saved, (Nodes{sum}));
}

TEST(Partition, TheWriteOfAnInputIsTheForwards) {
  Graph g;
  const int x = g.Add(kInput), counter = g.Add(kInput, {}, 8), tangent = g.Add(kTangent);
  const int more = g.Add(kPointwise, {counter}, 8), write = g.Add(kForwardOnly, {counter, more}, 8);
  const int out = g.Add(kPointwise, {x}), grad = g.Add(kPointwise, {tangent, x});
  g.forward = {out};
  g.backward = {grad};
  EXPECT_EQ(g.Parts().forward, (Nodes{more, write, out}));
  EXPECT_EQ(g.Parts().backward, (Nodes{grad}));
  // Never computed again, cheap as it may be.
  g.traits[write] |= kView | kPointwise;
  g.backward = {g.Add(kPointwise, {tangent, write})};
  EXPECT_EQ(g.Parts().saved, (Nodes{write}));
}

TEST(Partition, ElementsStandBehindTheirTuple) {
  Graph g;
  const int x = g.Add(kInput), tangent = g.Add(kTangent), both = g.Add(kProduct | kNoTensor, {x}, 2 * kSize);
  const int other = g.Add(kPointwise, {x});
  const int second = g.Add(kGetitem | kPointwise, {both}), first = g.Add(kGetitem | kPointwise, {both});
  const int out = g.Add(kPointwise, {first, other}), grad = g.Add(kPointwise, {tangent, second});
  g.forward = {out};
  g.backward = {grad};
  const Partition parts = g.Parts();
  EXPECT_EQ(parts.saved, (Nodes{second})) << "no tuple";
  EXPECT_EQ(parts.forward, (Nodes{both, second, first, other, out}));
}

TEST(Partition, DeadNodesCountForNothing) {
  Graph g;
  const int x = g.Add(kInput), tangent = g.Add(kTangent), tanh = g.Add(kPointwise, {x}), out = g.Add(kPointwise, {tanh});
  g.Add(kProduct, {tanh});
  const int grad = g.Add(kPointwise, {tangent, tanh});
  g.forward = {out};
  g.backward = {grad};
  EXPECT_EQ(g.Parts().saved, (Nodes{x}));
  EXPECT_EQ(g.Parts().forward, (Nodes{tanh, out}));
}

// A residual stream of one fused chain: without the ban, the backward would compute all of it from the first node.
TEST(Partition, ALongChainIsNotComputedAgainWhole) {
  Graph g;
  const int x = g.Add(kInput), tangent = g.Add(kTangent);
  int value = x;
  std::vector<int32_t> read = {tangent};
  for (int k = 0; k < 500; ++k) read.push_back(value = g.Add(kPointwise, {value}));
  g.forward = {g.Add(kProduct, {value})};
  int grad = tangent;
  for (size_t k = read.size() - 1; k > 0; --k) grad = g.Add(kPointwise, {grad, read[k]});
  g.backward = {grad};
  EXPECT_GT(g.Parts().saved.size(), 1u);
}

TEST(Partition, GraphsWithoutABackwardAndGraphsThatCannotBeCut) {
  Graph g;
  const int x = g.Add(kInput), out = g.Add(kPointwise, {x});
  g.forward = {out};
  EXPECT_EQ(g.Problem(), "no gradient is asked for");
  const int tangent = g.Add(kTangent), pair = g.Add(kProduct | kNoTensor, {x});
  g.backward = {g.Add(kPointwise, {tangent, pair})};
  g.forward = {out, pair};
  EXPECT_EQ(g.Problem(), "a value that the backward reads can neither be saved nor be computed again");
}

}  // namespace
}  // namespace tenon::aten
