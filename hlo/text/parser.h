// Parser: recursive descent over Lexer, one object per text. Private to hlo/text.
//
// Functions return false after leaving an error in the lexer. Limits: nesting by ParseOptions::max_depth, literals and
// parameter numbers by the length of the text, so that memory stays proportional to it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "hlo/text/lexer.h"
#include "hlo/text/text.h"

namespace tenon::text {

inline absl::string_view Abs(std::string_view s) { return {s.data(), s.size()}; }

class Parser {
 public:
  Parser(std::string_view text, const ParseOptions& options, DimTable* dims = nullptr)
      : lex_(text), options_(options), dims_(dims) {}

  absl::StatusOr<std::unique_ptr<Module>> ParseModule();
  absl::StatusOr<Shape> ParseShapeOnly();
  absl::StatusOr<Literal> ParseLiteralOnly(const Shape& shape);
  // Dim arithmetic checks its range by throwing; what throws while a text is read is that text's numbers.
  absl::Status OutOfRange();

 private:
  // One computation while it is read.
  struct Scope {
    Computation* computation;
    Scope* outer;
    absl::flat_hash_map<absl::string_view, Instruction*> names;
    bool make_parameters = false;  // single-instruction text: unknown operands with a shape become parameters
  };
  // An instruction while it is read: what Finish() makes it from.
  struct Draft {
    size_t position;
    std::string_view name;
    Opcode opcode{};
    Opcode wrapped{};          // of async sugar
    bool async_sugar = false;
    std::optional<Shape> shape;
    std::vector<Instruction*> operands;
    int64_t parameter_number = -1;
    std::optional<Literal> literal;
    Attributes attrs;
    Metadata metadata;
    std::vector<Instruction*> control_predecessors;
  };
  class Depth;

  // parser.cc
  bool ModuleHeader();
  bool ModuleAttribute(std::string_view key);
  bool OriginTables();
  bool AliasList();
  bool Symbols();
  bool EntryLayout();
  bool Headerless();
  bool Computations();
  bool ParseComputation();
  bool Signature(Computation* computation, std::optional<std::pair<std::vector<Shape>, Shape>>* signature);
  bool Body(Scope* scope);  // after '{' up to '}' (or the end of text), then root and parameters
  bool CloseBody(Scope* scope, Instruction* root, Instruction* last, size_t position);
  bool CheckSignature(const Computation& computation, const std::pair<std::vector<Shape>, Shape>& signature,
                      size_t position);
  bool ParseInstruction(Scope* scope, Instruction** made, bool* is_root);
  Instruction* RightHandSide(Scope* scope, std::string_view name, size_t position, bool attributes);
  bool OpcodeOf(Draft* draft);
  bool Operands(Scope* scope, Draft* draft);
  Instruction* Operand(Scope* scope);
  static void FillIn(Draft* draft);
  static void NestOperands(Draft* draft);
  Instruction* Finish(Scope* scope, Draft draft);
  bool WrapAsync(Scope* scope, Draft* draft);
  bool Fail(size_t position, const absl::Status& status);

  // parser_attrs.cc
  bool AttributeList(Scope* scope, Draft* draft);
  bool Attribute(Scope* scope, Draft* draft, std::string_view key);
  bool Value(Scope* scope, AttrKind kind, AttrValue* value);
  bool IntList(std::vector<int64_t>* out);
  bool Bool(bool* out);
  bool Double(double* out);
  bool DimList(std::vector<Dim>* out);
  bool SliceValue(SliceSpec* out);
  bool WindowValue(Window* out);
  bool WindowField(std::string_view key, Window* out);
  bool DimLabelsValue(DimLabels* out);
  bool PaddingValue(PaddingConfig* out);
  bool ComputationRef(Scope* scope, Computation** out);
  bool ComputationRefs(Scope* scope, std::vector<Computation*>* out);
  bool BackendConfig(Attributes* attrs);
  bool MetadataValue(Metadata* out);
  bool ControlPredecessors(Scope* scope, Draft* draft);
  bool FrontendAttributes(Draft* draft);
  bool ReplicaGroupsText(Draft* draft);
  bool LiteralAttribute(Draft* draft);

  // parser_shape.cc
  bool AtShape();
  bool ParseShape(Shape* out);
  bool ArrayShape(PrimitiveType type, Shape* out);
  bool Dimension(Dim* dim, bool* dynamic);
  bool DimExpression(std::string_view stops, Dim* out);
  bool Layout(Shape* shape);

  // parser_literal.cc
  bool ParseLiteral(const Shape& shape, std::string_view name, Literal* out);
  bool TupleLiteral(const Shape& shape, std::string_view name, Literal* out);
  bool ArrayLiteral(const Shape& shape, Literal* out);
  bool Elements(const Shape& shape, const std::vector<int64_t>& dims, size_t level, int64_t* next, Literal* out);
  bool Element(PrimitiveType type, Literal* whole, int64_t index);
  bool Splat(const Shape& shape, int64_t elements, Literal* out);
  bool TakeFilled(const Shape& shape);
  bool ElidedLiteral(const Shape& shape, std::string_view name, Literal* out);

  DimTable& dims() { return dims_ != nullptr ? *dims_ : module_->dims(); }

  Lexer lex_;
  const ParseOptions options_;
  DimTable* dims_ = nullptr;
  std::unique_ptr<Module> module_;
  absl::flat_hash_map<absl::string_view, Computation*> computations_;
  int depth_ = 0;
  size_t parameter_slots_ = 0;  // sum of the computations' parameter vectors, at most the text's length
  int64_t filled_bytes_ = 0;    // of elided constants
  size_t entry_position_ = 0, layout_position_ = 0, alias_position_ = 0;  // where the verifier's errors belong
  Computation* entry_ = nullptr;
  Computation* last_ = nullptr;
};

// Counts nesting while it lives.
class Parser::Depth {
 public:
  explicit Depth(Parser* p) : p_(p) { ++p_->depth_; }
  ~Depth() { --p_->depth_; }
  bool ok() const {
    return p_->depth_ <= p_->options_.max_depth ||
           p_->lex_.Error(p_->lex_.position(), "less nesting", "more than max_depth");
  }

 private:
  Parser* p_;
};

}  // namespace tenon::text
