// Program::ToString: the text form that tools print and tests read.
#include "runtime/program/program.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tenon {
namespace {

template <typename... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <typename... F>
Overloaded(F...) -> Overloaded<F...>;

std::string Size(SizeRef ref) { return ref >= 0 ? absl::StrCat(ref) : absl::StrCat("d", ~ref); }
std::string Sizes(const std::vector<SizeRef>& refs) {
  return absl::StrJoin(refs, ",",
                       [](std::string* out, SizeRef r) { absl::StrAppend(out, Size(r)); });
}
std::string Type(PrimitiveType type) { return std::string(PrimitiveTypeName(type)); }
std::string Meta(PrimitiveType type, const std::vector<SizeRef>& dims,
                 const std::vector<SizeRef>& strides) {
  return absl::StrCat(Type(type), "[", Sizes(dims), "]{", Sizes(strides), "}");
}
std::string ToText(const View& view) {
  if (view.value < 0) return "none";
  std::string text = absl::StrCat("v", view.value);
  if (view.byte_offset != 0) absl::StrAppend(&text, "+", Size(view.byte_offset));
  return absl::StrCat(text, ":", Meta(view.dtype, view.dims, view.strides));
}
std::string ToText(const std::vector<View>& views) {
  return absl::StrJoin(views, ", ",
                       [](std::string* out, const View& v) { absl::StrAppend(out, ToText(v)); });
}

std::string ToText(const DimOp& op) {
  static constexpr const char* kNames[] = {"",    "dim",      "stride", "scalar", "add", "sub",
                                           "mul", "floordiv", "mod",    "min",    "max"};
  switch (op.kind) {
    case DimOp::Kind::kConstant:
      return absl::StrCat(op.a);
    case DimOp::Kind::kInputScalar:
      return absl::StrCat("scalar(in", op.a, ")");
    case DimOp::Kind::kInputDim:
    case DimOp::Kind::kInputStride:
      return absl::StrCat(kNames[static_cast<int>(op.kind)], "(in", op.a, ", ", op.b, ")");
    default:
      return absl::StrCat(kNames[static_cast<int>(op.kind)], "(", Size(op.a), ", ", Size(op.b),
                          ")");
  }
}

// Nothing of the host's memory, where all lies as a rule.
std::string InSpace(int32_t space) { return space == 0 ? "" : absl::StrCat(" in space ", space); }

std::string ToText(const InputSpec& in) {
  switch (in.kind) {
    case InputSpec::Kind::kSymInt:
      return "symint";
    case InputSpec::Kind::kNone:
      return "none";
    case InputSpec::Kind::kOther:
      return "other";
    case InputSpec::Kind::kTensor:
      break;
  }
  return absl::StrCat(Meta(in.dtype, in.dims, in.strides), in.mutated ? " mutated" : "",
                      in.packed_by.empty() ? "" : absl::StrCat(" packed by ", in.packed_by, "(", absl::StrJoin(in.packing, ","), ")"),
                      InSpace(in.space));
}

std::string ToText(const OutputSpec& out) {
  switch (out.kind) {
    case OutputKind::kFresh:
      return absl::StrCat("fresh ", Meta(out.dtype, out.dims, out.strides), InSpace(out.space));
    case OutputKind::kSlot:
      return absl::StrCat("slot ", out.index);
    case OutputKind::kInput:
      return absl::StrCat("in", out.index);
    case OutputKind::kConstant:
      return absl::StrCat("constant ", out.index);
    case OutputKind::kNone:
      return "none";
    case OutputKind::kSymInt:
      return absl::StrCat("symint ", Size(out.size));
  }
  return "";
}

std::string KindText(const Value& value) {
  switch (value.kind) {
    case ValueKind::kInput:
      return absl::StrCat("input ", value.index);
    case ValueKind::kConstant:
      return absl::StrCat("constant ", value.index);
    case ValueKind::kArena:
      if (value.is_placed_per_call()) {
        return absl::StrCat("arena +", Size(value.bytes), " alive [", value.life.first, ", ", value.life.last, "]");
      }
      return absl::StrCat("arena [", Size(value.offset), ", +", Size(value.bytes), ")");
    case ValueKind::kOutput:
      if (value.has_life()) return absl::StrCat("output ", value.index, " from ", value.life.first);
      return absl::StrCat("output ", value.index);
    case ValueKind::kSlot:
      return absl::StrCat("slot ", value.index);
    case ValueKind::kErrorWord:
      return "error word";
    case ValueKind::kUpdate:
      return absl::StrCat("update of input ", value.index);
    case ValueKind::kLent:
      return absl::StrCat("lent by output ", value.index, " [", Size(value.offset), ", +", Size(value.bytes), ")");
  }
  return "";
}

std::string ToText(const Value& value) { return absl::StrCat(KindText(value), InSpace(value.space)); }

std::string ToText(const LaunchShape& l) {
  return absl::StrCat(" grid (", Size(l.grid[0]), ", ", Size(l.grid[1]), ", ", Size(l.grid[2]), ") block (", absl::StrJoin(l.block, ", "),
                      ") shared ", l.shared_bytes, " stream ", l.stream);
}

std::string Body(const Program& p, const KernelStep& s) {
  std::string text = absl::StrCat(s.launch ? "launch " : "kernel ", p.kernels[s.kernel].symbol, "(", ToText(s.operands),
                                  ") writes ", s.num_results);
  if (s.launch) absl::StrAppend(&text, ToText(*s.launch));
  else absl::StrAppend(&text, " range [", Size(s.begin), ", ", Size(s.end), ") grain ", Size(s.grain), s.joins_units ? " joined" : "");
  if (s.room.bytes > 0) {
    absl::StrAppend(&text, " scratch in ", s.room.output < 0 ? "arena" : absl::StrCat("output ", s.room.output), " [", s.room.offset, ", +",
                    s.room.bytes, ")");
  }
  if (!s.args.empty()) absl::StrAppend(&text, " args (", Sizes(s.args), ")");
  if (!s.literals.empty())
    absl::StrAppend(&text, " literals (", absl::StrJoin(s.literals, ", "), ")");
  return text;
}

std::string Body(const FrameworkStep& s) {
  static constexpr const char* kRules[] = {"out", "owned", "view"};
  return absl::StrCat("call ", s.overload, tenon::ToString(s.args), " of (", ToText(s.operands),
                      ") -> ", kRules[static_cast<int>(s.rule)], " (", ToText(s.results), ")",
                      s.reason.empty() ? "" : absl::StrCat(" because \"", s.reason, "\""));
}

std::string Body(const LibraryStep& s) {
  const std::string scratch = s.scratch_bytes < 0 ? " scratch by size" : absl::StrCat(" scratch ", s.scratch_bytes);
  return absl::StrCat("library ", s.function, s.attributes.ToString(), " of (", ToText(s.operands), ") -> (", ToText(s.results), ")",
                      s.scratch_bytes == 0 ? "" : scratch);
}

std::string ToText(const Program& p, const Step& step) {
  std::string text =
      std::visit(Overloaded{[&](const KernelStep& s) { return Body(p, s); },
                            [&](const FrameworkStep& s) { return Body(s); },
                            [&](const LibraryStep& s) { return Body(s); },
                            [&](const CopyStep& s) {
                              return absl::StrCat("copy ", ToText(s.from), " to ", ToText(s.to));
                            },
                            [&](const WhileStep& s) {
                              return absl::StrCat("while r", s.condition, " (", ToText(s.predicate),
                                                  ") do r", s.body);
                            },
                            [&](const ConditionalStep& s) {
                              return absl::StrCat("switch ", ToText(s.index), " r",
                                                  absl::StrJoin(s.branches, " r"));
                            }},
                 step.body);
  static constexpr const char* kEffects[] = {"", " random", " mutates", " host-read", " error"};
  absl::StrAppend(&text, kEffects[static_cast<int>(step.effect)]);
  if (!step.release_slots.empty())
    absl::StrAppend(&text, " release slots ", absl::StrJoin(step.release_slots, " "));
  if (!step.release_inputs.empty())
    absl::StrAppend(&text, " release inputs ", absl::StrJoin(step.release_inputs, " "));
  if (!step.source.empty()) absl::StrAppend(&text, "  // ", step.source);
  return absl::StrCat(step.name, " = ", text);
}

template <typename V>
void Section(std::string* out, const char* name, const V& rows) {
  for (size_t k = 0; k < rows.size(); ++k)
    absl::StrAppend(out, "  ", name, k, " = ", ToText(rows[k]), "\n");
}

}  // namespace

int64_t Program::code_bytes() const {
  int64_t bytes = 0;
  for (const CodeImage& image : code) bytes += static_cast<int64_t>(image.object.size());
  return bytes;
}

std::string Program::ToString() const {
  std::string out = absl::StrCat(
      "program \"", name, "\" ", tier == Tier::kNative ? "native" : "eager",
      tier_reason.empty() ? "" : absl::StrCat(" because \"", tier_reason, "\""), " {\n");
  Section(&out, "d", dim_program);
  for (const Guard& guard : guards) absl::StrAppend(&out, "  guard ", guard.ToString(), "\n");
  Section(&out, "in", inputs);
  Section(&out, "out", outputs);
  for (size_t k = 0; k < constants.size(); ++k) {
    const ConstantSpec& c = constants[k];
    absl::StrAppend(&out, "  c", k, " = ");
    if (c.kind == ConstantSpec::Kind::kFramework) {
      absl::StrAppend(&out, "framework ", c.index, " ", Type(c.dtype), "[",
                      absl::StrJoin(c.dims, ","), "]\n");
    } else {
      const bool small = c.literal.num_elements() <= 8;
      absl::StrAppend(&out, c.literal.shape().ToString(),
                      small ? absl::StrCat(" ", c.literal.ToString()) : "", "\n");
    }
  }
  Section(&out, "v", values);
  for (size_t k = 0; k < kernels.size(); ++k) {
    const std::string& target = code[kernels[k].code].target;
    absl::StrAppend(&out, "  k", k, " = ", kernels[k].symbol, " scratch ", kernels[k].scratch_bytes,
                    target == kHostTarget ? "" : absl::StrCat(" of target ", target), "\n");
  }
  for (size_t k = 0; k < checks.size(); ++k) {
    absl::StrAppend(&out, "  check", k, " = ", checks[k].exception, ": ", checks[k].message, "\n");
  }
  absl::StrAppend(&out, "  arena ", Size(arena_bytes), " bytes, ", num_slots, " slots\n");
  for (const DeviceArena& a : device_arenas) absl::StrAppend(&out, "  arena", InSpace(a.space), " ", Size(a.bytes), " bytes\n");
  for (size_t r = 0; r < regions.size(); ++r) {
    absl::StrAppend(&out, "  region r", r, " ", regions[r].name,
                    static_cast<int32_t>(r) == commit_region ? " (commit)" : "", " {\n");
    for (const Step& step : regions[r].steps)
      absl::StrAppend(&out, "    ", ToText(*this, step), "\n");
    absl::StrAppend(&out, "  }\n");
  }
  return absl::StrCat(out, "}\n");
}

}  // namespace tenon
