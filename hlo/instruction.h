// Instruction: one HLO operation. Owned by its Computation; pointers are stable for the instruction's life.
//
// Operand and user edges are kept consistent by every mutator. `users()` holds each user once, in the order of first
// use. An instruction of a multi-result op has a tuple shape; get-tuple-element takes it apart.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "hlo/attributes.h"
#include "hlo/literal.h"
#include "hlo/opcode.h"
#include "hlo/shape.h"

namespace tenon {

class Computation;
class Module;

// Where an instruction comes from, as shown to the user. `op_name` is e.g. "aten.add.Tensor" or JAX's op_name.
struct Metadata {
  std::string op_type, op_name, source_file;
  int64_t source_line = 0, source_column = 0, source_end_line = 0, source_end_column = 0;
  int64_t stack_frame_id = 0;
  std::string module_path;  // ours, printed as a frontend attribute: "model.layer.0.attention"
  std::vector<std::pair<std::string, std::string>> unknown;  // kept verbatim
  bool empty() const;
};

class Instruction {
 public:
  Instruction(Opcode opcode, Shape shape, absl::Span<Instruction* const> operands, std::string name = "");
  Instruction(const Instruction&) = delete;

  Opcode opcode() const { return opcode_; }
  const OpInfo& info() const { return InfoOf(opcode_); }
  Family family() const { return info().family; }
  const Shape& shape() const { return shape_; }
  Shape& mutable_shape() { return shape_; }
  const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }
  int64_t id() const { return id_; }  // unique in the module, creation order; never reused
  Computation* parent() const { return parent_; }
  Module* module() const;

  absl::Span<Instruction* const> operands() const { return operands_; }
  Instruction* operand(int64_t i) const { return operands_[i]; }
  int64_t operand_count() const { return static_cast<int64_t>(operands_.size()); }
  absl::Span<Instruction* const> users() const { return users_; }
  int64_t user_count() const { return static_cast<int64_t>(users_.size()); }
  void ReplaceOperand(int64_t i, Instruction* with);
  void AppendOperand(Instruction* operand);
  void RemoveOperand(int64_t i);
  // Every user (and the root) takes `with` instead; control edges stay.
  void ReplaceAllUsesWith(Instruction* with);

  absl::Span<Instruction* const> control_predecessors() const { return control_predecessors_; }
  absl::Span<Instruction* const> control_successors() const { return control_successors_; }
  void AddControlPredecessor(Instruction* pred);
  void ClearControlEdges();

  const Attributes& attrs() const { return attrs_; }
  Attributes& mutable_attrs() { return attrs_; }
  Metadata& metadata() { return metadata_; }
  const Metadata& metadata() const { return metadata_; }

  // Typed views of the attributes. Calling one that the opcode lacks fails a check.
  const std::vector<int64_t>& dimensions() const { return attrs_.get<std::vector<int64_t>>(Attr::kDimensions); }
  std::vector<int64_t> int_list(Attr a) const { return attrs_.get_or<std::vector<int64_t>>(a, {}); }
  std::vector<Dim> dim_list(Attr a) const { return attrs_.get_or<std::vector<Dim>>(a, {}); }
  Computation* to_apply() const { return attrs_.get<Computation*>(Attr::kToApply); }
  Computation* fused_computation() const { return attrs_.get<Computation*>(Attr::kCalls); }
  std::vector<Computation*> called_computations() const;
  const std::string& comparison_direction() const { return attrs_.get<std::string>(Attr::kDirection); }
  int64_t tuple_index() const { return attrs_.get<int64_t>(Attr::kTupleIndex); }
  const std::string& custom_call_target() const { return attrs_.get<std::string>(Attr::kCustomCallTarget); }
  std::string backend_config() const;  // as text, "" if there is none
  const FrameworkCallSite* framework_call() const;  // NULL: backend_config, if any, is text
  void set_backend_config_json(std::string json);

  int64_t parameter_number() const;  // kParameter
  void set_parameter_number(int64_t n) { parameter_number_ = n; }
  const Literal& literal() const;  // kConstant
  bool has_literal() const { return literal_ != nullptr; }
  void set_literal(Literal literal) { literal_ = std::make_unique<Literal>(std::move(literal)); }

  // Two evaluations may differ or change something outside (rng, send, effectful custom calls, and callers of such).
  bool HasSideEffect() const;
  bool IsStateful() const;  // HasSideEffect or kStateful: neither CSE nor reorder
  // Each element from the operands' at its own index. (Not so: a bitcast-convert between widths.)
  bool IsElementwise() const {
    return family() == Family::kElementwise && opcode_ != Opcode::kMap &&
           (opcode_ != Opcode::kBitcastConvert || operand(0)->shape().rank() == shape().rank());
  }

  // Same opcode, shape (layouts too), attributes, literal, called computations (structurally); operands pointer-equal.
  static bool Identical(const Instruction& a, const Instruction& b);
  // The same without the operands (whose number must agree).
  static bool IdenticalIgnoringOperands(const Instruction& a, const Instruction& b);

  // A detached copy with other operands; called computations are shared (the caller clones them if needed).
  std::unique_ptr<Instruction> Clone(absl::Span<Instruction* const> new_operands) const;
  std::unique_ptr<Instruction> CloneWithShape(const Shape& shape, absl::Span<Instruction* const> new_operands) const;

  std::string ToString() const;  // one line of HLO text (text/printer.h)

 private:
  friend class Computation;
  void AddUse(Instruction* operand);
  void DropUse(Instruction* operand);
  bool Uses(const Instruction* operand) const;
  void LinkOperands();
  void UnlinkOperands();

  Opcode opcode_;
  Shape shape_;
  std::string name_;
  int64_t id_ = -1;
  Computation* parent_ = nullptr;
  std::vector<Instruction*> operands_, users_, control_predecessors_, control_successors_;
  Attributes attrs_;
  Metadata metadata_;
  int64_t parameter_number_ = -1;
  std::unique_ptr<Literal> literal_;
};

}  // namespace tenon
