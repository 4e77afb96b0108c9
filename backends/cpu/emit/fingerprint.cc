// FingerprintOf: a canonical print of a fused computation for structural dedupe.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "backends/cpu/emit/codegen.h"
#include "hlo/text/text.h"

namespace tenon {
namespace {

std::string Dims(absl::Span<const Dim> dims) {
  return absl::StrJoin(dims, ",", [](std::string* s, Dim d) { absl::StrAppend(s, d.ToString()); });
}

struct AttrPrinter {
  std::string operator()(int64_t v) const { return absl::StrCat(v); }
  std::string operator()(bool v) const { return v ? "1" : "0"; }
  std::string operator()(const std::string& v) const { return v; }
  std::string operator()(double v) const { return absl::StrCat(v); }
  std::string operator()(const std::vector<int64_t>& v) const { return absl::StrJoin(v, ","); }
  std::string operator()(const SliceSpec& v) const {
    return absl::StrCat(Dims(v.starts), ":", Dims(v.limits), ":", absl::StrJoin(v.strides, ","));
  }
  std::string operator()(const Window& v) const {
    std::string s;
    for (const WindowDim& d : v.dims) {
      absl::StrAppend(&s, d.size, "_", d.stride, "_", d.padding_low, "_", d.padding_high, "_",
                      d.base_dilation, "_", d.window_dilation, "_", d.reversed, ";");
    }
    return s;
  }
  std::string operator()(const DimLabels& v) const {
    auto dims = [](const std::vector<int64_t>& d) { return absl::StrJoin(d, ","); };
    return absl::StrCat(v.input_batch, "_", v.input_feature, "_", dims(v.input_spatial), ";",
                        v.kernel_input_feature, "_", v.kernel_output_feature, "_",
                        dims(v.kernel_spatial), ";", v.output_batch, "_", v.output_feature, "_",
                        dims(v.output_spatial));
  }
  std::string operator()(const PaddingConfig& v) const {
    std::string s;
    for (const PaddingDim& d : v.dims)
      absl::StrAppend(&s, d.low, "_", d.high, "_", d.interior, ";");
    return s;
  }
  // With what it calls in turn: of those its text has only the names.
  std::string operator()(Computation* c) const {
    std::string s = Print(*c, {.metadata = false, .canonical = true});
    for (const Instruction* op : c->instructions()) {
      for (Computation* callee : op->called_computations()) absl::StrAppend(&s, (*this)(callee));
    }
    return s;
  }
  std::string operator()(const std::vector<Computation*>& cs) const {
    std::string s;
    for (Computation* c : cs) absl::StrAppend(&s, (*this)(c));
    return s;
  }
};

void PrintInstruction(const FusedKernel& f, const Instruction& op, std::string* out) {
  absl::StrAppend(out, std::string(OpcodeName(op.opcode())), " ",
                  op.shape().ToString(/*with_layout=*/op.opcode() == Opcode::kBitcast), "(");
  for (const Instruction* o : op.operands()) absl::StrAppend(out, f.number.at(o), ",");
  absl::StrAppend(out, ")");
  if (op.opcode() == Opcode::kParameter) absl::StrAppend(out, op.parameter_number());
  if (op.opcode() == Opcode::kBitcast) absl::StrAppend(out, op.operand(0)->shape().ToString(true));
  if (op.opcode() == Opcode::kConstant) {
    if (auto it = f.literal_of.find(&op); it != f.literal_of.end()) {
      absl::StrAppend(out, "arg", it->second);
    } else {
      const Literal& l = op.literal();
      out->append(reinterpret_cast<const char*>(l.bytes()), static_cast<size_t>(l.size_bytes()));
    }
  }
  for (const auto& [attr, value] : op.attrs()) {
    if (attr == Attr::kMetadata || attr == Attr::kFrontendAttributes || attr == Attr::kSharding)
      continue;
    absl::StrAppend(out, " ", std::string(AttrName(attr)), "=", std::visit(AttrPrinter{}, value));
  }
  out->push_back('\n');
}

void PrintLayouts(std::string_view name, const std::vector<OperandLayout>& layouts,
                  std::string* out) {
  for (const OperandLayout& l : layouts) absl::StrAppend(out, std::string(name), " ", Dims(l.strides), "\n");
}

}  // namespace

std::string FingerprintOf(const FusedKernel& f) {
  std::string out;
  for (const Instruction* op : f.order) PrintInstruction(f, *op, &out);
  absl::StrAppend(&out, "root ", f.number.at(f.computation->root()), "\n");
  PrintLayouts("operand", f.operands, &out);
  PrintLayouts("result", f.results, &out);
  return out;
}

}  // namespace tenon
