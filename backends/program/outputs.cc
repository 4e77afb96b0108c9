// ProgramBuilder: what the caller gets, and what is written back into its inputs.
#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "backends/program/builder.h"
#include "backends/program/framework_config.h"
#include "hlo/check.h"
#include "hlo/own_calls.h"

namespace tenon {

absl::Status ProgramBuilder::EmitOutputs() {
  absl::flat_hash_set<int64_t> slots_given;
  for (int64_t k = 0; k < static_cast<int64_t>(binding_.outputs.size()); ++k) {
    const Binding::Output& out = binding_.outputs[k];
    OutputSpec spec{.kind = out.kind, .index = out.index, .dtype = out.dtype, .space = out.space};
    if (out.space != 0) ImageOf(out.space);
    TENON_ASSIGN_OR_RETURN(spec.dims, dims_.Refs(out.sizes));
    TENON_ASSIGN_OR_RETURN(spec.strides, dims_.Refs(out.strides));
    TENON_ASSIGN_OR_RETURN(spec.size, dims_.Ref(out.symint));
    if (out.kind == OutputKind::kFresh || out.kind == OutputKind::kSlot) {
      TENON_RETURN_IF_ERROR(PlaceOutput(k, out, &spec, &slots_given));
    }
    program().outputs.push_back(std::move(spec));
  }
  return absl::OkStatus();
}

absl::Status ProgramBuilder::PlaceOutput(int64_t k, const Binding::Output& out, OutputSpec* spec,
                                         absl::flat_hash_set<int64_t>* slots_given) {
  spec->kind = OutputKind::kFresh;
  if (auto it = direct_.find(out.root_index); it != direct_.end() && it->second == k) return absl::OkStatus();
  const BufferKey key = RootLeaf(out.root_index);
  const StridedView& view = views_.at(key);
  const Value& value = program().values[plan_.of.at(view.buffer)];
  const bool own = value.kind == ValueKind::kSlot && value.space == out.space && view.buffer == key;
  const bool opaque = out.dtype == PrimitiveType::kOpaque;
  // A view of an input is another caller's memory, or about to be written: the graph may have had a copy where HLO has the input.
  const bool given = own && LiesAs(AsMade(key), out.sizes, out.strides) && (opaque || ParameterUnder(*view.buffer.instruction) == nullptr);
  TENON_CHECK(given || !opaque, absl::StrCat("output ", k, " is opaque and in no slot"));
  if (given && (slots_given->insert(value.index).second || opaque)) {
    spec->kind = OutputKind::kSlot;
    spec->index = value.index;
    return absl::OkStatus();
  }
  // A copy into fresh memory, through the strides asked for (dims of stride 0 have one element in the view).
  StridedView to{.dims = view.dims};
  to.strides.assign(out.strides.begin(), out.strides.end());
  CopyStep copy;
  TENON_ASSIGN_OR_RETURN(copy.from, ViewOf(view, out.dtype));
  copy.to = {.value = static_cast<int32_t>(program().values.size()), .dtype = out.dtype, .dims = copy.from.dims};
  TENON_ASSIGN_OR_RETURN(copy.to.strides, dims_.Refs(to.strides));
  TENON_ASSIGN_OR_RETURN(SizeRef bytes, dims_.Ref(StorageBytes(out)));
  program().values.push_back({.kind = ValueKind::kOutput, .index = k, .bytes = bytes, .space = out.space});
  Step step = NewStep(*key.instruction);
  step.name = absl::StrCat("output ", k);
  Note(step, "copied", "its consumer or the caller needs other strides");
  step.body = std::move(copy);
  steps().push_back(std::move(step));
  return absl::OkStatus();
}

// The value as the one who made it has it: a call's result may have its dims in another order than HLO.
const StridedView& ProgramBuilder::AsMade(const BufferKey& key) const {
  if (const auto plan = plans_.find(key.instruction); plan != plans_.end()) {
    if (const auto* call = dynamic_cast<const PlannedCall*>(plan->second.target.get())) return call->result;
  }
  return views_.at(key);
}

const Instruction* ProgramBuilder::ParameterUnder(const Instruction& op) const {
  if (op.opcode() == Opcode::kParameter) return &op;
  if (!IsFrameworkCall(op)) return nullptr;
  FrameworkCallSite read;
  const absl::StatusOr<const FrameworkCallSite*> site = CallSiteOf(op, &read);
  if (!site.ok() || (*site)->rule != ResultRule::kView) return nullptr;
  for (const Instruction* operand : op.operands()) {
    if (const Instruction* under = ParameterUnder(*views_.at({operand, 0}).buffer.instruction)) return under;
  }
  return nullptr;
}

bool ProgramBuilder::LiesAs(const StridedView& view, absl::Span<const Dim> sizes, absl::Span<const Dim> strides) {
  if (view.dims.size() != sizes.size()) return false;
  for (size_t d = 0; d < view.dims.size(); ++d) {
    if (!KnownEqual(view.dims[d], sizes[d])) return false;
    if (!KnownOne(view.dims[d]) && !KnownEqual(view.strides[d], strides[d])) return false;
  }
  return true;
}

Dim ProgramBuilder::StorageBytes(const Binding::Output& out) {
  Dim extent = 1;
  for (size_t d = 0; d < out.sizes.size(); ++d) {
    if (KnownEqual(out.sizes[d], 0)) return 0;
    extent += (out.sizes[d] - 1) * out.strides[d];
  }
  return extent * ByteWidth(out.dtype);
}

absl::Status ProgramBuilder::EmitMutations() {
  if (binding_.mutations.empty()) return absl::OkStatus();
  program().commit_region = static_cast<int32_t>(program().regions.size());
  program().regions.push_back({.name = "commit"});
  TENON_ASSIGN_OR_RETURN(const std::vector<WriteBack> order, ReadersFirst());
  for (const auto& [m, held] : order) {
    const Binding::Input& input = binding_.inputs[m.input];
    const BufferKey key = RootLeaf(m.root_index);
    CopyStep copy;
    if (held) {
      copy.from = *held;
    } else {
      TENON_ASSIGN_OR_RETURN(copy.from, ViewOf(key));
    }
    copy.to = copy.from;
    copy.to.value = InputValue(m.input);
    copy.to.byte_offset = 0;
    TENON_ASSIGN_OR_RETURN(copy.to.dims, dims_.Refs(input.sizes));
    TENON_ASSIGN_OR_RETURN(copy.to.strides, dims_.Refs(input.strides));
    Step step{.body = std::move(copy), .name = absl::StrCat("write-back ", input.name), .effect = Effect::kMutates};
    if (!update_value_.contains(views_.at(key).buffer)) Note(step, "copied", "written back");
    program().regions[program().commit_region].steps.push_back(std::move(step));
  }
  return absl::OkStatus();
}

// What there is to write, in an order in which nothing is read after it is written. x, y = y + 1, x: the source of one is the memory of
// another. Of x, y = y, x neither can be first: one's source is copied before.
absl::StatusOr<std::vector<ProgramBuilder::WriteBack>> ProgramBuilder::ReadersFirst() {
  std::vector<WriteBack> left, ordered;
  absl::flat_hash_map<int64_t, int64_t> readers;  // of an input, among those left
  for (const Binding::Mutation& m : binding_.mutations) {
    if (WritesItself(m)) continue;
    left.push_back({m});
    if (const auto input = InputReadBy(m)) ++readers[*input];
  }
  while (!left.empty()) {
    std::vector<WriteBack> still_read;
    for (const WriteBack& w : left) {
      if (readers[w.mutation.input] > 0) {
        still_read.push_back(w);
        continue;
      }
      ordered.push_back(w);
      const auto input = InputReadBy(w.mutation);
      if (input && !w.held) --readers[*input];
    }
    if (still_read.size() == left.size()) {
      WriteBack& first = *absl::c_find_if(still_read, [&](const WriteBack& w) { return !w.held && InputReadBy(w.mutation).has_value(); });
      --readers[*InputReadBy(first.mutation)];
      TENON_ASSIGN_OR_RETURN(first.held, Hold(first.mutation));
    }
    left = std::move(still_read);
  }
  return ordered;
}

// A copy of what is written back, made before anything is.
absl::StatusOr<View> ProgramBuilder::Hold(const Binding::Mutation& m) {
  const StridedView& source = views_.at(RootLeaf(m.root_index));
  CopyStep copy;
  TENON_ASSIGN_OR_RETURN(copy.from, ViewOf(RootLeaf(m.root_index)));
  TENON_ASSIGN_OR_RETURN(copy.to, NewDense(source, copy.from.dtype));
  View held = copy.to;
  Step step{.body = std::move(copy), .name = absl::StrCat("hold for ", binding_.inputs[m.input].name)};
  Note(step, "copied", "inputs that are written back read one another");
  steps().push_back(std::move(step));
  return held;
}

// The input in whose memory lies what is written back; nullopt: in none's.
std::optional<int64_t> ProgramBuilder::InputReadBy(const Binding::Mutation& m) const {
  const Instruction* parameter = ParameterUnder(*views_.at(RootLeaf(m.root_index)).buffer.instruction);
  if (parameter == nullptr) return std::nullopt;
  const Binding::Parameter& p = binding_.parameters[parameter->parameter_number()];
  return p.kind == Binding::Parameter::Kind::kInput ? std::optional<int64_t>(p.index) : std::nullopt;
}

// What is written back turned out to be the input as it is.
bool ProgramBuilder::WritesItself(const Binding::Mutation& m) const {
  const StridedView& source = views_.at(RootLeaf(m.root_index));
  const Binding::Input& input = binding_.inputs[m.input];
  const bool whole = KnownEqual(source.offset, 0) && LiesAs(source, input.sizes, input.strides);
  return source.buffer.instruction->opcode() == Opcode::kParameter && InputReadBy(m) == m.input && whole;
}

int32_t ProgramBuilder::InputValue(int64_t input) {
  for (size_t v = 0; v < program().values.size(); ++v) {
    if (program().values[v].kind == ValueKind::kInput && program().values[v].index == input) return static_cast<int32_t>(v);
  }
  program().values.push_back({.kind = ValueKind::kInput, .index = input, .bytes = 0, .space = binding_.inputs[input].space});
  return static_cast<int32_t>(program().values.size()) - 1;
}

}  // namespace tenon
