// What the rewrites of Retarget share: the graph as it is made anew, node by node. Values keep their numbers; new ones come behind.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "torch_plugin/aten/graph.h"

namespace tenon::aten {

class Rewriter {
 public:
  Rewriter(const Graph& from, std::string_view device);

  const Graph& from() const { return from_; }
  const std::string& device() const { return device_; }
  Meta& meta(ValueId v) { return graph_.values[static_cast<size_t>(v)].meta; }
  Dim& size(ValueId v, int64_t d) { return meta(v).sizes[static_cast<size_t>(d)]; }
  bool IsUsed(ValueId v) const { return used_.contains(v); }

  // A dense tensor of the device, rows first.
  Meta Dense(PrimitiveType dtype, std::vector<Dim> sizes) const;
  ValueId NewValue(std::string_view like, std::string_view suffix, Meta meta);
  // Behind all that was added. Its results' GraphValue::node is set.
  void Add(Node node);
  // aten.<op> of one result, with the provenance of `at`.
  ValueId AddOne(const Node& at, std::string op, std::vector<FrameworkArg> args, std::vector<ValueId> operands, ValueId result);

  // What an earlier node became, by the number it had.
  struct Became {
    std::string op;
    std::vector<ValueId> results;
  };
  absl::flat_hash_map<int32_t, Became> became;

  absl::Status Refuse(const Node& node, std::string_view why) const;
  Graph Take() { return std::move(graph_); }

 private:
  const Graph& from_;
  const std::string device_;
  Graph graph_;
  absl::flat_hash_set<std::string> names_;
  absl::flat_hash_set<ValueId> used_;
};

// A size as an argument.
FrameworkArg SizeArg(Dim size);

// aten._scaled_dot_product_flash_attention_for_cpu and its backward: flash attention of halves without a mask, else efficient attention.
absl::Status RetargetAttention(const Node& node, int32_t number, Rewriter& to);
absl::Status RetargetAttentionBackward(const Node& node, int32_t number, Rewriter& to);

}  // namespace tenon::aten
