// Printer: the text of modules, computations and instructions. Private to hlo/text.
#pragma once

#include <string>

#include "absl/container/flat_hash_map.h"
#include "hlo/text/text.h"

namespace tenon::text {

class Printer {
 public:
  explicit Printer(const PrintOptions& options) : options_(options) {}

  void Write(const Module& module);
  void Write(const Computation& computation, bool entry);
  void Write(const Instruction& instruction);
  std::string Take() { return std::move(out_); }

 private:
  // printer.cc
  void Header(const Module& module);
  void Symbols(const Module& module);
  void CanonicalNames(const Module& module);
  std::vector<Instruction*> Order(const Computation& computation) const;
  void Name(const Instruction& i);
  void Name(const Computation& c);
  void PlainName(std::string_view name, int64_t id);
  void Operands(const Instruction& i);

  // printer_attrs.cc
  void ShapeText(const Shape& shape);
  void Layout(const Shape& shape);
  void Ints(absl::Span<const int64_t> values);
  void AttributeList(const Instruction& i);
  void Value(Attr attr, const AttrValue& value, const Instruction& i);
  void WindowText(const Window& window);
  void Dims(const std::vector<Dim>& dims);
  void SliceText(const SliceSpec& slice);
  void DimLabelsText(const DimLabels& labels);
  void PaddingText(const PaddingConfig& padding);
  void BackendConfig(const Instruction& i);
  void FrontendAttributes(const Instruction& i);
  void MetadataText(const Metadata& m);
  void Number(int64_t value);

  const PrintOptions options_;
  std::string out_;
  bool in_module_ = false;
  absl::flat_hash_map<const Instruction*, int64_t> instruction_numbers_;  // canonical
  absl::flat_hash_map<const Computation*, int64_t> computation_numbers_;
  std::vector<const Computation*> canonical_order_;
};

}  // namespace tenon::text
