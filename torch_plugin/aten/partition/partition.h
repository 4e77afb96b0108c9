// How a training graph is cut into forward and backward: what the forward saves, and what the backward computes again from it.
//
// The rules are those of PyTorch's min-cut (torch/_functorch/partitioners.py, min_cut_rematerialization_partition, with its default
// settings), so that the saved values are the same ones; docs/architecture/partition.md. Plain numbers in, plain numbers out: neither
// torch nor Python is known here.
#ifndef TENON_TORCH_PLUGIN_ATEN_PARTITION_PARTITION_H_
#define TENON_TORCH_PLUGIN_ATEN_PARTITION_PARTITION_H_

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace tenon::aten {

// Bits of JointGraph::traits. torch_tenon/partition.py has the same names and numbers; the extension gives them to it.
enum JointTrait : uint32_t {
  kInput = 1,           // of the forward
  kTangent = 2,         // an input of the backward
  kStatic = 4,          // an input that lives on whatever is saved: a parameter
  kConstant = 8,        // a get_attr: there in both
  kGetitem = 16,        // an element of a tuple; stands right behind it
  kFusible = 32,        // can be computed together with a fusible neighbour
  kFusesAnything = 64,  // reads any producer into its kernel: concatenation
  kView = 128,          // costs nothing to compute again
  kRecomputable = 256,  // others are never computed again
  kAlwaysFree = 512,    // of a call: no rule forbids computing it again
  kNoTensor = 1024,     // a tuple: can't be saved
  kForwardOnly = 2048,  // writes an input: in the forward whoever needs it, and in no backward
};

// A joint graph's nodes in topological order, without its output node.
struct JointGraph {
  std::span<const uint32_t> traits;
  std::span<const int64_t> bytes;           // of each node's result
  std::span<const int64_t> argument_bytes;  // of the tensors that are a call's arguments, those within lists left out
  std::span<const int32_t> operand_begin;   // node n reads operands[operand_begin[n]..operand_begin[n + 1]), each one an earlier node
  std::span<const int32_t> operands;
  std::span<const int32_t> forward_outputs, backward_outputs;  // nodes; what is returned and no node is left out
};

// Nodes by number. `saved`: of the forward's extra outputs, in the graph's order, each of them read by the backward. `forward` and
// `backward`: what each computes, in the order in which it should, without inputs.
struct Partition {
  std::vector<int32_t> saved, forward, backward;
  int64_t saved_bytes = 0;  // static inputs left out
};

// Or why there is none: a graph without a backward, or one that can't be cut.
std::variant<Partition, std::string> PartitionJointGraph(const JointGraph& graph);

}  // namespace tenon::aten

#endif  // TENON_TORCH_PLUGIN_ATEN_PARTITION_PARTITION_H_
