// ProgramBuilder: where values live. Buffers of the plan become values of the program.
#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "backends/program/builder.h"
#include "backends/program/framework_config.h"
#include "hlo/check.h"
#include "hlo/own_calls.h"
#include "passes/expand/control_flow.h"
#include "passes/fusion/fused_form.h"

namespace tenon {
namespace {

// A literal is row-major whatever its shape's layout says; memory follows the layout.
Literal InMemoryOrder(const Literal& literal, const Shape& shape) {
  const std::vector<int64_t> dims = shape.constant_dims();
  const int64_t n = literal.num_elements(), width = ByteWidth(literal.type());
  if (n <= 1 || shape.minor_to_major() == RowMajor(shape.rank())) return literal;
  Literal ordered(literal.shape());
  std::byte* to = ordered.mutable_bytes();
  const DimVector strides = shape.strides();
  std::vector<int64_t> index(dims.size(), 0);
  for (int64_t i = 0; i < n; ++i) {
    int64_t at = 0;
    for (size_t d = 0; d < index.size(); ++d) at += index[d] * strides[d].constant();
    std::copy_n(literal.bytes() + i * width, width, to + at * width);
    for (size_t d = index.size(); d-- > 0 && ++index[d] == dims[d];) index[d] = 0;
  }
  return ordered;
}

}  // namespace

BufferKey ProgramBuilder::RootLeaf(int64_t leaf) const {
  const ValueLeaf source = SourceOfLeaf(module_.entry()->root(), leaf);
  return {source.op, source.leaf};
}

// Fresh outputs that their producer can write directly: whole buffers, dense as asked for, each once.
void ProgramBuilder::FindDirectOutputs() {
  absl::flat_hash_set<BufferKey> taken;
  for (int64_t k = 0; k < static_cast<int64_t>(binding_.outputs.size()); ++k) {
    const Binding::Output& out = binding_.outputs[k];
    if (out.kind != OutputKind::kFresh) continue;
    const StridedView& view = views_.at(RootLeaf(out.root_index));
    const Instruction* producer = view.buffer.instruction;
    if (producer->opcode() == Opcode::kParameter || producer->opcode() == Opcode::kConstant || IsFrameworkCall(*producer)) continue;
    if (const auto plan = plans_.find(producer); plan != plans_.end() && plan->second.owned) continue;
    const Shape leaf = FlattenShape(producer->shape())[view.buffer.leaf];
    Dim elements = 1;
    for (Dim d : view.dims) elements *= d;
    bool same = KnownEqual(view.offset, 0) && KnownEqual(elements, leaf.num_elements());
    same = same && (targets_.size() == 1 ? 0 : leaf.memory_space()) == out.space;
    for (size_t d = 0; d < view.dims.size() && same; ++d) {
      same = KnownOne(view.dims[d]) || KnownEqual(view.strides[d], out.strides[d]);
    }
    if (same && taken.insert(view.buffer).second) direct_[out.root_index] = k;
  }
}

// Write-backs that may be written early: of inputs whose memory only one parameter reads, and no operator may have kept.
absl::Status ProgramBuilder::FindUpdates() {
  absl::flat_hash_set<const Instruction*> kept;
  for (const Computation* c : ControlComputations(module_)) {
    for (const Instruction* op : c->instructions()) {
      if (!IsFrameworkCall(*op)) continue;
      FrameworkCallSite read;
      TENON_ASSIGN_OR_RETURN(const FrameworkCallSite* site, CallSiteOf(*op, &read));
      if (site->rule != ResultRule::kView) continue;
      for (const Instruction* operand : op->operands()) kept.insert(views_.at({operand, 0}).buffer.instruction);
    }
  }
  absl::flat_hash_map<int64_t, std::vector<int64_t>> leaves_of;  // by input
  absl::flat_hash_set<int64_t> barred;
  int64_t leaf = 0;
  for (const Instruction* op : module_.entry()->parameters()) {
    for (const int64_t end = leaf + LeafCount(op->shape()); leaf < end; ++leaf) {
      const Binding::Parameter& p = ParameterOf(leaf);
      if (p.kind != Binding::Parameter::Kind::kInput) continue;
      leaves_of[p.index].push_back(leaf);
      if (p.flat_storage || kept.contains(op)) barred.insert(p.index);
    }
  }
  for (const Binding::Mutation& m : binding_.mutations) {
    const auto leaves = leaves_of.find(m.input);
    if (leaves == leaves_of.end() || leaves->second.size() != 1 || barred.contains(m.input)) continue;
    if (kept.contains(views_.at(RootLeaf(m.root_index)).buffer.instruction)) continue;
    update_[m.root_index] = leaves->second.front();
  }
  return absl::OkStatus();
}

// Their values: the allocation is the parameter's, of which nothing else is written.
absl::Status ProgramBuilder::AddUpdateValues() {
  for (const auto& [owner, parameter] : plan_.updates) {
    update_value_[owner] = static_cast<int32_t>(program().values.size());
    Value value{.kind = ValueKind::kUpdate, .index = ParameterOf(parameter).index};
    TENON_ASSIGN_OR_RETURN(value.bytes, dims_.Ref(FlattenShape(owner.instruction->shape())[owner.leaf].byte_size()));
    program().values.push_back(value);
  }
  return absl::OkStatus();
}

absl::Status ProgramBuilder::Plan() {
  FindDirectOutputs();
  TENON_RETURN_IF_ERROR(FindUpdates());
  BufferPlanOptions options;
  options.in_slot = [](const Instruction& op, int64_t leaf) {
    return IsFrameworkCall(op) && !absl::c_any_of(WrittenOperands(op), [&](const WrittenOperand& w) { return w.leaf == leaf; });
  };
  options.direct_output = [this](int64_t leaf) { return direct_.contains(leaf); };
  options.update = [this](int64_t leaf) {
    const auto it = update_.find(leaf);
    return it == update_.end() ? std::nullopt : std::make_optional(it->second);
  };
  options.is_total = [](const Instruction& op) {
    if (!IsFrameworkCall(op)) return false;
    FrameworkCallSite read;
    const absl::StatusOr<const FrameworkCallSite*> site = CallSiteOf(op, &read);
    return site.ok() && (*site)->total;
  };
  options.plans = &plans_;
  options.views = &views_;
  options.spaces = targets_.size() > 1;
  TENON_ASSIGN_OR_RETURN(plan_, PlanBuffers(module_, options));
  built_.buffer_plan = plan_.ToString();
  auto fixed = [this](int64_t space, int64_t bytes) { return plan_.symbolic_arenas.contains(space) ? 0 : bytes; };
  program().arena_bytes = fixed(0, plan_.arena_bytes);
  for (const auto& [space, bytes] : plan_.device_arenas) {
    program().device_arenas.push_back({.space = static_cast<int32_t>(space), .bytes = fixed(space, bytes)});
  }
  for (const Allocation& a : plan_.allocations) {
    TENON_ASSIGN_OR_RETURN(Value value, ValueOf(a));
    value.space = static_cast<int32_t>(a.space);
    if (a.space != 0) ImageOf(a.space);
    program().values.push_back(value);
  }
  return AddUpdateValues();
}

absl::StatusOr<Value> ProgramBuilder::ValueOf(const Allocation& a) {
  Value value{.index = a.index};
  TENON_ASSIGN_OR_RETURN(value.bytes, dims_.Ref(a.bytes));
  switch (a.kind) {
    case Allocation::Kind::kParameter: {
      const Binding::Parameter& p = ParameterOf(a.index);
      if (p.kind == Binding::Parameter::Kind::kInput) {
        value.kind = ValueKind::kInput;
        value.index = p.index;
      } else {
        value.kind = ValueKind::kConstant;
        TENON_ASSIGN_OR_RETURN(value.index, FrameworkConstant(p));
      }
      return value;
    }
    case Allocation::Kind::kConstant:
      value.kind = ValueKind::kConstant;
      value.index = static_cast<int64_t>(program().constants.size());
      program().constants.push_back({.literal = InMemoryOrder(a.constant->literal(), a.constant->shape()),
                                     .dims = a.constant->shape().constant_dims(),
                                     .dtype = a.constant->shape().element_type()});
      return value;
    case Allocation::Kind::kArena: {
      value.offset = a.offset;
      if (a.lender >= 0) {
        value.kind = ValueKind::kLent;
        value.index = direct_.at(plan_.allocations[static_cast<size_t>(a.lender)].index);
        return value;
      }
      value.kind = ValueKind::kArena;
      if (!plan_.symbolic_arenas.contains(a.space) || a.first < 0) return value;
      value.offset = 0;
      value.life = {static_cast<int32_t>(a.first), static_cast<int32_t>(a.last)};
      return value;
    }
    case Allocation::Kind::kOutput:
      value.kind = ValueKind::kOutput;
      value.index = direct_.at(a.index);
      if (plan_.symbolic_arenas.contains(0) && a.space == 0 && a.first > 0) {
        value.life = {static_cast<int32_t>(a.first), static_cast<int32_t>(a.last)};
      }
      return value;
    case Allocation::Kind::kSlot:
      value.kind = ValueKind::kSlot;
      program().num_slots = std::max<int32_t>(program().num_slots, static_cast<int32_t>(a.index) + 1);
      return value;
  }
  return absl::InternalError("unknown allocation kind");
}

absl::StatusOr<int64_t> ProgramBuilder::FrameworkConstant(const Binding::Parameter& p) {
  ConstantSpec spec{.kind = ConstantSpec::Kind::kFramework, .index = p.index, .dtype = p.dtype};
  for (size_t d = 0; d < p.sizes.size(); ++d) {
    spec.dims.push_back(p.sizes[d].constant());
    spec.strides.push_back(p.strides[d].constant());
  }
  program().constants.push_back(std::move(spec));
  return static_cast<int64_t>(program().constants.size()) - 1;
}

absl::StatusOr<View> ProgramBuilder::ViewOf(const StridedView& strided, PrimitiveType type) {
  auto it = plan_.of.find(strided.buffer);
  TENON_CHECK(it != plan_.of.end(), absl::StrCat("no buffer for ", strided.buffer.instruction->name()));
  const auto update = update_value_.find(strided.buffer);
  View view{.value = update == update_value_.end() ? it->second : update->second, .dtype = type};
  TENON_ASSIGN_OR_RETURN(view.byte_offset, dims_.Ref(strided.offset * ByteWidth(type)));
  TENON_ASSIGN_OR_RETURN(view.dims, dims_.Refs(strided.dims));
  TENON_ASSIGN_OR_RETURN(view.strides, dims_.Refs(strided.strides));
  return view;
}
absl::StatusOr<View> ProgramBuilder::ViewOf(BufferKey key) {
  return ViewOf(views_.at(key), FlattenShape(key.instruction->shape())[key.leaf].element_type());
}

}  // namespace tenon
