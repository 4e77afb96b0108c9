// GraphBuilder: an aten::Graph made call by call. What the C seam's tenon_graph_* and the parser of the text share, so that both refuse
// the same graphs.
//
// Order: symbols first, then values (inputs, constants, literals) and nodes as they are used, the return last; after it nothing more is
// taken. Every name is one that the text can hold. Errors say what was wanted and what came; a graph that had one is not complete and
// may only be destroyed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "torch_plugin/aten/graph.h"

namespace tenon::aten {

// The node, its operands numbered, writes this one. InvalidArgument: it isn't given that.
absl::Status AddWritten(ValueId value, Node* node);

class GraphBuilder {
 public:
  explicit GraphBuilder(std::string name) { graph_.name = std::move(name); }

  // typical: a value to plan for; <= 0: unknown.
  absl::Status AddSymbol(std::string_view name, int64_t lower, int64_t upper, int64_t typical);
  // A size as text (DimTable::Parse) over the declared symbols.
  absl::StatusOr<Dim> Expression(std::string_view text) const;
  absl::StatusOr<ValueId> Lookup(std::string_view name) const;

  absl::StatusOr<ValueId> AddInput(std::string_view name, Meta meta);
  // The next of the tensors that are handed to the compile.
  absl::StatusOr<ValueId> AddConstant(std::string_view name, Meta meta);
  absl::StatusOr<ValueId> AddLiteral(std::string_view name, Meta meta, Literal literal);

  // `node` has op, args, operands, mutates_first (result 0, if it is named, is operand 0's memory) and provenance; its results are made
  // here. `metas`: one for each of `names`; with mutates_first none, since the result's is operand 0's.
  absl::StatusOr<std::vector<ValueId>> AddNode(Node node, absl::Span<const std::string_view> names, std::vector<Meta> metas);
  // The seam's form of a node's arguments: a kTensor's i is a ValueId. Fills `operands` and renumbers.
  absl::Status NumberOperands(Node* node) const;

  // An output that is a value of kind kSymInt or kNone is that number, or none.
  absl::Status AddOutput(GraphOutput output);
  absl::Status Finish();

  bool finished() const { return finished_; }
  const Graph& graph() const { return graph_; }
  Graph& mutable_graph() { return graph_; }
  Graph Take() { return std::move(graph_); }

 private:
  absl::Status Open() const;
  absl::Status CheckMeta(const Meta& meta) const;
  absl::Status CheckArg(const FrameworkArg& arg, int depth) const;
  absl::Status CheckWrites(const Node& node, const std::vector<Meta>& metas) const;
  absl::Status CheckValue(int64_t value) const;
  absl::StatusOr<ValueId> Define(std::string_view name, Meta meta, int32_t node, int32_t result);

  Graph graph_;
  absl::flat_hash_map<std::string, ValueId> by_name_;
  bool finished_ = false;
};

// ParseGraph, with the names: complete.
absl::StatusOr<GraphBuilder> ParseInto(std::string_view text);

}  // namespace tenon::aten
