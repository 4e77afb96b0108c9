// HLO text: parser and printer of XLA's grammar, plus symbols in shapes ("f32[s0,768]").
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "hlo/module.h"

namespace tenon {

struct ParseOptions {
  // constant({...}): refuse (default), or fill deterministically from the instruction's name and shape.
  bool fill_elided_constants = false;
  bool verify = true;  // run the verifier afterwards
  int max_depth = 256;                           // nesting of shapes, literals, anonymous operands
  int64_t max_elements = int64_t{1} << 32;       // of one literal
};

// Errors are InvalidArgument: "line 3, column 17: wanted an opcode, got 'foo'". Never crashes on any input.
absl::StatusOr<std::unique_ptr<Module>> ParseModule(std::string_view text, const ParseOptions& options = {});
absl::StatusOr<Shape> ParseShape(std::string_view text, DimTable* dims);
absl::StatusOr<Literal> ParseLiteral(const Shape& shape, std::string_view text);

struct PrintOptions {
  bool percent = false;           // names with '%'
  bool operand_shapes = false;
  bool layouts = true;            // print layouts that are not row-major (always those, always given ones)
  bool metadata = true;
  bool backend_config = true;
  bool canonical = false;         // names renumbered in post-order, no metadata, no names: for hashing and comparing
  int64_t max_constant_elements = -1;  // larger constants print as {...}; -1: never elide
};
std::string Print(const Module& module, const PrintOptions& options = {});
std::string Print(const Computation& computation, const PrintOptions& options = {});
std::string Print(const Instruction& instruction, const PrintOptions& options = {});

}  // namespace tenon
