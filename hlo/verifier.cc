// The invariants of a module, in the order they are checked. tests/hlo/verifier_test.cc breaks each one.
//
//   verify_entry        the module has an entry computation, which is one of its own
//   verify_root         every computation has a root, which is one of its instructions
//   verify_parameters   parameters are numbered 0..n-1, each once, and parameters() lists them
//   verify_operands     operands and control predecessors are instructions of the same computation
//   verify_users        x is a user of y exactly when y is an operand of x, once
//   verify_control      control edges are kept on both sides
//   verify_acyclic      operands and control edges form no cycle
//   verify_callees      called computations are the module's own, and no computation calls itself, however indirectly
//   verify_entry_called the entry is called by nobody
//   verify_names        instruction names are unique in a computation, computation names in the module
//   verify_literal      a constant has a literal of its shape, nothing else has one
//   verify_attributes   attributes are those of ops.def for the opcode, each holding its kind of value
//   verify_shape        the shape is what inference says (labels of its own: docs/hlo.md)
//   verify_layout       with VerifyOptions::layouts: the entry's arrays all have a layout
//   verify_schedule     of a scheduled module: operands come before their users in instructions()
//   verify_alias        input_output_alias names existing outputs and parameters of compatible shape
//   verify_entry_layout entry_computation_layout fits the entry's parameters and root
//   verify_async        an async op's chain starts with async-start; its computation has that one caller
#include "hlo/verifier.h"

#include <algorithm>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "hlo/infer/context.h"
#include "hlo/infer/infer.h"

namespace tenon {
namespace {

absl::string_view Abs(std::string_view s) { return {s.data(), s.size()}; }

std::string Describe(const Instruction& i) {
  return absl::StrCat(Abs(OpcodeName(i.opcode())), " ", i.name());
}

// "<label>: <where>: wanted ..., got ..."
absl::Status Broken(const char* label, std::string_view where, std::string_view wanted, std::string_view got) {
  return absl::InternalError(
      absl::StrCat(label, ": ", Abs(where), ": wanted ", Abs(wanted), ", got ", Abs(got)));
}

bool HoldsKind(AttrKind kind, const AttrValue& v) {
  switch (kind) {
    case AttrKind::kInt: return std::holds_alternative<int64_t>(v);
    case AttrKind::kBool: return std::holds_alternative<bool>(v);
    case AttrKind::kIntList: return std::holds_alternative<std::vector<int64_t>>(v);
    case AttrKind::kDimList: return std::holds_alternative<std::vector<Dim>>(v);
    case AttrKind::kDouble: return std::holds_alternative<double>(v);
    case AttrKind::kSlice: return std::holds_alternative<SliceSpec>(v);
    case AttrKind::kWindow: return std::holds_alternative<Window>(v);
    case AttrKind::kDimLabels: return std::holds_alternative<DimLabels>(v);
    case AttrKind::kPadding: return std::holds_alternative<PaddingConfig>(v);
    case AttrKind::kComp: return std::holds_alternative<Computation*>(v);
    case AttrKind::kCompList: return std::holds_alternative<std::vector<Computation*>>(v);
    case AttrKind::kIdent:
    case AttrKind::kQuoted:
    case AttrKind::kRaw: return std::holds_alternative<std::string>(v) || std::holds_alternative<FrameworkCallRef>(v);
  }
  return false;
}

class Verifier {
 public:
  Verifier(const Module& module, const VerifyOptions& options) : module_(module), options_(options) {}

  absl::Status Run() {
    computations_ = module_.computations();
    if (module_.entry() == nullptr) return Broken("verify_entry", module_.name(), "an entry computation", "none");
    if (module_.entry()->module() != &module_) {
      return Broken("verify_entry", module_.name(), "an entry of this module", "one of another");
    }
    for (const Computation* c : computations_) TENON_RETURN_IF_ERROR(Structure(*c));
    TENON_RETURN_IF_ERROR(CallGraph());
    for (const Computation* c : computations_) {
      for (const Instruction* i : c->instructions()) TENON_RETURN_IF_ERROR(Meaning(*i));
      if (options_.scheduled || module_.is_scheduled) TENON_RETURN_IF_ERROR(Schedule(*c));
    }
    if (options_.layouts) TENON_RETURN_IF_ERROR(EntryHasLayouts());
    TENON_RETURN_IF_ERROR(Aliases());
    return EntryLayout();
  }

 private:
  // What must hold before anything can be walked.
  absl::Status Structure(const Computation& c) {
    if (c.module() != &module_) return Broken("verify_callees", c.name(), "computations of this module", "another's");
    if (c.root() == nullptr || c.root()->parent() != &c) {
      return Broken("verify_root", c.name(), "a root of its own", c.root() == nullptr ? "none" : "another's");
    }
    if (!computation_names_.insert(c.name()).second) {
      return Broken("verify_names", c.name(), "a name of its own", "another computation's");
    }
    const std::vector<Instruction*> all = c.instructions();
    absl::flat_hash_set<absl::string_view> names;
    names.reserve(all.size());
    size_t parameters = 0;
    for (const Instruction* i : all) {
      if (!names.insert(i->name()).second) {
        return Broken("verify_names", Describe(*i), "a name of its own", "another instruction's");
      }
      TENON_RETURN_IF_ERROR(Edges(*i, c));
      if (i->opcode() != Opcode::kParameter) continue;
      ++parameters;
      const int64_t n = i->parameter_number();
      if (n < 0 || n >= static_cast<int64_t>(c.parameters().size()) || c.parameter(n) != i) {
        return Broken("verify_parameters", Describe(*i), "its place in parameters()", absl::StrCat("number ", n));
      }
    }
    if (parameters != c.parameters().size()) {
      return Broken("verify_parameters", c.name(), absl::StrCat(c.parameters().size(), " parameters"),
                    absl::StrCat(parameters));
    }
    return Acyclic(c, all);
  }

  absl::Status Edges(const Instruction& i, const Computation& c) {
    for (const Instruction* operand : i.operands()) {
      if (operand == nullptr || operand->parent() != &c) {
        return Broken("verify_operands", Describe(i), "operands of its computation",
                      operand == nullptr ? "none" : Describe(*operand));
      }
      if (!Holds(operand->users(), &i)) {
        return Broken("verify_users", Describe(*operand), absl::StrCat(i.name(), " among its users"), "not there");
      }
    }
    absl::flat_hash_set<const Instruction*> seen;
    for (const Instruction* user : i.users()) {
      const bool again = i.users().size() > 1 && !seen.insert(user).second;
      if (again || !Holds(user->operands(), &i)) {
        return Broken("verify_users", Describe(i), "users that take it as an operand, each once", Describe(*user));
      }
    }
    for (const Instruction* p : i.control_predecessors()) {
      if (p->parent() != &c) return Broken("verify_operands", Describe(i), "control edges inside", Describe(*p));
      if (!Holds(p->control_successors(), &i)) {
        return Broken("verify_control", Describe(i), "a successor edge of its control predecessor", Describe(*p));
      }
    }
    for (const Instruction* s : i.control_successors()) {
      if (!Holds(s->control_predecessors(), &i)) {
        return Broken("verify_control", Describe(i), "a predecessor edge of its control successor", Describe(*s));
      }
    }
    return absl::OkStatus();
  }

  // Long lists are asked about once per element: their set is made once.
  bool Holds(absl::Span<Instruction* const> list, const Instruction* wanted) {
    if (list.size() <= 16) return std::find(list.begin(), list.end(), wanted) != list.end();
    auto [it, is_new] = sets_.try_emplace(list.data());
    if (is_new) it->second.insert(list.begin(), list.end());
    return it->second.contains(wanted);
  }

  static size_t DistinctOperands(const Instruction& i) {
    const auto operands = i.operands();
    if (operands.size() > 8) return absl::flat_hash_set<const Instruction*>(operands.begin(), operands.end()).size();
    size_t n = 0;
    for (size_t k = 0; k < operands.size(); ++k) {
      n += std::find(operands.begin(), operands.begin() + k, operands[k]) == operands.begin() + k;
    }
    return n;
  }

  // Kahn's algorithm: what is left over lies on a cycle.
  absl::Status Acyclic(const Computation& c, const std::vector<Instruction*>& all) {
    absl::flat_hash_map<const Instruction*, size_t> waiting;
    waiting.reserve(all.size());
    std::vector<const Instruction*> ready;
    for (const Instruction* i : all) {
      const size_t n = DistinctOperands(*i) + i->control_predecessors().size();
      waiting[i] = n;
      if (n == 0) ready.push_back(i);
    }
    size_t done = 0;
    auto release = [&](const Instruction* i) {
      if (--waiting[i] == 0) ready.push_back(i);
    };
    while (!ready.empty()) {
      const Instruction* i = ready.back();
      ready.pop_back();
      ++done;
      for (const Instruction* user : i->users()) release(user);
      for (const Instruction* s : i->control_successors()) release(s);
    }
    return done == all.size() ? absl::OkStatus() : Broken("verify_acyclic", c.name(), "no cycle", "one");
  }

  absl::Status CallGraph() {
    absl::flat_hash_map<const Computation*, int> async_callers;
    absl::flat_hash_map<const Computation*, size_t> position;
    for (size_t k = 0; k < computations_.size(); ++k) position[computations_[k]] = k;
    for (const Computation* c : computations_) {
      for (const Instruction* i : c->instructions()) {
        for (const Computation* callee : i->called_computations()) {
          if (callee == module_.entry()) {
            return Broken("verify_entry_called", Describe(*i), "no call of the entry", "one");
          }
          // computations() lists callees first unless calls form a cycle.
          if (position[callee] >= position[c]) {
            return Broken("verify_callees", Describe(*i), "no recursion", callee->name());
          }
          if (i->opcode() == Opcode::kAsyncStart && ++async_callers[callee] > 1) {
            return Broken("verify_async", Describe(*i), "a computation called from here only", callee->name());
          }
        }
      }
    }
    return absl::OkStatus();
  }

  absl::Status Meaning(const Instruction& i) {
    for (const auto& [attr, value] : i.attrs()) {
      if (!i.info().allows(attr) || !HoldsKind(KindOf(attr), value)) {
        return Broken("verify_attributes", Describe(i), "attributes of its row in ops.def", AttrName(attr));
      }
    }
    if (i.opcode() == Opcode::kConstant) {
      if (!i.has_literal()) return Broken("verify_literal", Describe(i), "a literal", "none");
      if (!infer::KnownCompatible(i.literal().shape(), i.shape())) {
        return Broken("verify_literal", Describe(i), i.shape().ToString(), i.literal().shape().ToString());
      }
    } else if (i.has_literal()) {
      return Broken("verify_literal", Describe(i), "no literal", "one");
    }
    if (i.opcode() == Opcode::kAsyncUpdate || i.opcode() == Opcode::kAsyncDone) {
      const Opcode from = i.operand_count() == 1 ? i.operand(0)->opcode() : Opcode::kAdd;
      if (from != Opcode::kAsyncStart && from != Opcode::kAsyncUpdate) {
        return Broken("verify_async", Describe(i), "an operand from async-start or async-update", OpcodeName(from));
      }
    }
    return options_.shapes ? ShapeOf(i) : absl::OkStatus();
  }

  absl::Status ShapeOf(const Instruction& i) {
    absl::StatusOr<Shape> inferred = InferShape(i.opcode(), i.operands(), i.attrs(), &i.shape());
    if (!inferred.ok()) {
      return absl::InternalError(absl::StrCat("verify_shape: ", Describe(i), ": ", inferred.status().message()));
    }
    if (!infer::KnownCompatible(*inferred, i.shape())) {
      return Broken("verify_shape", Describe(i), inferred->ToString(), i.shape().ToString());
    }
    return absl::OkStatus();
  }

  absl::Status EntryHasLayouts() {
    for (const Instruction* i : module_.entry()->instructions()) {
      for (const Shape& leaf : FlattenShape(i->shape())) {
        if (leaf.is_array() && leaf.rank() > 0 && !leaf.has_layout()) {
          return Broken("verify_layout", Describe(*i), "a layout", leaf.ToString(true));
        }
      }
    }
    return absl::OkStatus();
  }

  absl::Status Schedule(const Computation& c) {
    absl::flat_hash_set<const Instruction*> done;
    for (const Instruction* i : c.instructions()) {
      for (const auto& list : {i->operands(), i->control_predecessors()}) {
        for (const Instruction* before : list) {
          if (!done.contains(before)) {
            return Broken("verify_schedule", Describe(*i), absl::StrCat(before->name(), " before it"), "later");
          }
        }
      }
      done.insert(i);
    }
    return absl::OkStatus();
  }

  static const Shape* At(const Shape& shape, absl::Span<const int64_t> index) {
    const Shape* s = &shape;
    for (int64_t k : index) {
      if (k < 0 || k >= static_cast<int64_t>(s->elements().size())) return nullptr;
      s = &s->element(k);
    }
    return s;
  }

  absl::Status Aliases() {
    for (const InputOutputAlias& a : module_.aliases) {
      const Computation& entry = *module_.entry();
      const Shape* out = At(entry.root()->shape(), a.output_index);
      const Shape* in = a.parameter >= 0 && a.parameter < static_cast<int64_t>(entry.parameters().size())
                            ? At(entry.parameter(a.parameter)->shape(), a.parameter_index)
                            : nullptr;
      if (out == nullptr || in == nullptr || !infer::KnownCompatible(*out, *in)) {
        return Broken("verify_alias", module_.name(), "an output and a parameter of one shape",
                      absl::StrCat(out == nullptr ? "no output" : out->ToString(), " and ",
                                   in == nullptr ? "no parameter" : in->ToString()));
      }
    }
    return absl::OkStatus();
  }

  absl::Status EntryLayout() {
    if (!module_.entry_layout.has_value()) return absl::OkStatus();
    const auto& [parameters, result] = *module_.entry_layout;
    const Computation& entry = *module_.entry();
    bool fits = parameters.size() == entry.parameters().size() &&
                infer::KnownCompatible(result, entry.root()->shape());
    for (size_t k = 0; fits && k < parameters.size(); ++k) {
      fits = infer::KnownCompatible(parameters[k], entry.parameter(static_cast<int64_t>(k))->shape());
    }
    return fits ? absl::OkStatus()
                : Broken("verify_entry_layout", module_.name(), "the entry's parameters and result", "other shapes");
  }

  const Module& module_;
  const VerifyOptions options_;
  std::vector<Computation*> computations_;
  absl::flat_hash_set<std::string> computation_names_;
  absl::flat_hash_map<Instruction* const*, absl::flat_hash_set<const Instruction*>> sets_;
};

}  // namespace

absl::Status Verify(const Module& module, const VerifyOptions& options) { return Verifier(module, options).Run(); }

}  // namespace tenon
