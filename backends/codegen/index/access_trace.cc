// TraceAccesses: walks the fusion symbolically, as the emitter does, and notes every memory offset.
#include "backends/codegen/index/access_trace.h"

#include "backends/codegen/index/contraction_index.h"

namespace tenon {
namespace {

class Tracer {
 public:
  Tracer(IndexSpace& space, const FusedKernel& fused, int last) : space_(space), fused_(fused), last_(last) {}

  void Visit(const Instruction* op, const IndexTuple& index) {
    if (!seen_.insert({op, std::vector<Index>(index.begin(), index.end())}).second) return;
    switch (op->opcode()) {
      case Opcode::kParameter:
        NoteLoad(op, index);
        return;
      case Opcode::kConstant:
        return;
      case Opcode::kIota:
        CountDivisions(index[op->attrs().get<int64_t>(Attr::kIotaDimension)]);
        return;
      case Opcode::kReduce:
        VisitReduce(op, index);
        return;
      case Opcode::kReduceWindow:
        VisitWindow(op, index);
        return;
      case Opcode::kDot:
      case Opcode::kConvolution:
        VisitContraction(op, index);
        return;
      case Opcode::kGetTupleElement:
        Visit(op->operand(0), index);
        return;
      default:
        break;
    }
    for (int64_t k = 0; k < op->operand_count(); ++k) {
      std::optional<OperandIndex> mapped = MapToOperand(space_, *op, k, index);
      if (!mapped) {
        if (!IsReadAtRunTime(*op)) Elsewhere(op->operand(k));
        continue;
      }
      for (const IndexBound& bound : mapped->bounds) CountDivisions(bound.index);
      Visit(op->operand(k), mapped->index);
    }
  }

  void Note(MemoryUse use) {
    CountDivisions(use.offset);
    trace.uses.push_back(use);
  }

  void NoteLoad(const Instruction* op, const IndexTuple& index) {
    MemoryUse use{.op = op, .offset = space_.Linear(index, fused_.operands[op->parameter_number()].strides), .inside = true};
    for (size_t d = 0; d < index.size(); ++d) {
      use.inside = use.inside && !ReadsMemory(index[d]) && Decide({index[d], op->shape().dim(static_cast<int64_t>(d))}) == true;
    }
    Note(use);
  }

  // All that `op` is computed of is read at places that nobody looks at.
  void Elsewhere(const Instruction* op) {
    if (!elsewhere_.insert(op).second) return;
    if (op->opcode() == Opcode::kParameter) trace.elsewhere.insert(op);
    for (const Instruction* o : op->operands()) Elsewhere(o);
  }

  AccessTrace trace;

 private:
  // Operands without an index map are start indices, which the index of the first one reads.
  static bool IsReadAtRunTime(const Instruction& op) {
    return op.opcode() == Opcode::kGather || op.opcode() == Opcode::kDynamicSlice || op.opcode() == Opcode::kDynamicUpdateSlice;
  }

  void VisitReduce(const Instruction* op, const IndexTuple& index) {
    for (const Instruction* r : fused_.reduces) {
      if (r == op) return;  // the plan's own: visited as a phase
    }
    const Shape& shape = op->operand(0)->shape();
    if (space_.num_vars() + shape.rank() > IndexSpace::kMaxVars) return Elsewhere(op);
    for (int64_t k = op->operand_count() / 2; k < op->operand_count(); ++k) Elsewhere(op->operand(k));
    IndexTuple full(shape.rank(), nullptr);
    for (int64_t d : op->dimensions()) full[d] = space_.Var(shape.dim(d));
    size_t next = 0;
    for (Index& i : full) {
      if (i == nullptr) i = index[next++];
    }
    for (int64_t k = 0; k < op->operand_count() / 2; ++k) Visit(op->operand(k), full);
  }

  void VisitWindow(const Instruction* op, const IndexTuple& index) {
    const int64_t components = op->operand_count() / 2;
    for (int64_t k = components; k < op->operand_count(); ++k) Elsewhere(op->operand(k));
    IndexTuple tap;
    for (const WindowDim& w : WindowOf(*op).dims) {
      if (w.size > 1 && space_.num_vars() == IndexSpace::kMaxVars) return Elsewhere(op);
      tap.push_back(w.size > 1 ? space_.Var(w.size) : space_.Constant(0));
    }
    const OperandIndex at = MapWindow(space_, *op, index, tap);
    for (const IndexBound& bound : at.bounds) CountDivisions(bound.index);
    for (int64_t k = 0; k < components; ++k) Visit(op->operand(k), at.index);
  }

  void VisitContraction(const Instruction* op, const IndexTuple& index) {
    std::vector<Index> vars;
    for (Dim extent : SummedExtents(*op)) {
      if (space_.num_vars() == IndexSpace::kMaxVars) return Elsewhere(op);
      vars.push_back(space_.Var(extent));
    }
    const ContractionIndex at = MapContraction(space_, *op, index, vars);
    for (const IndexBound& bound : at.bounds) CountDivisions(bound.index);
    Visit(op->operand(0), at.lhs);
    Visit(op->operand(1), at.rhs);
  }

  void CountDivisions(Index e) {
    if (!counted_.insert(e).second) return;
    switch (e->kind) {
      case IndexNode::Kind::kSum:
        for (const auto& t : e->terms) CountDivisions(t.node);
        return;
      case IndexNode::Kind::kFloorDiv:
      case IndexNode::Kind::kMod:
        ++trace.divisions;
        if (!e->divisor.is_constant() && last_ >= 0 && e->DependsOn(last_)) ++trace.dear;
        CountDivisions(e->inner);
        return;
      case IndexNode::Kind::kRuntime:
        Visit(e->producer, e->at);
        return;
      case IndexNode::Kind::kVar:
        return;
    }
  }

  IndexSpace& space_;
  const FusedKernel& fused_;
  const int last_;  // variable of the last loop, or -1
  absl::flat_hash_set<std::pair<const Instruction*, std::vector<Index>>> seen_;
  absl::flat_hash_set<Index> counted_;
  absl::flat_hash_set<const Instruction*> elsewhere_;
};

}  // namespace

AccessTrace TraceAccesses(IndexSpace& space, const FusedKernel& fused, const Iteration& iteration) {
  Tracer tracer(space, fused, iteration.vars.empty() ? -1 : iteration.vars.back()->var);
  for (const Instruction* r : fused.reduces) {
    for (int64_t k = 0; k < r->operand_count() / 2; ++k) {
      tracer.Visit(r->operand(k), iteration.IndexOf(space, fused, r->operand(k)->shape()));
      tracer.Elsewhere(r->operand(r->operand_count() / 2 + k));  // where it starts
    }
  }
  for (size_t i = 0; i < fused.roots.size(); ++i) {
    const Instruction* root = fused.roots[i];
    const Shape& shape = RootShape(fused, i);
    if (fused.RoleOf(shape) == Role::kOther) {
      tracer.Elsewhere(root);
      continue;
    }
    IndexTuple index = iteration.IndexOf(space, fused, shape);
    tracer.Visit(root, index);
    tracer.Note({.op = root, .offset = space.Linear(index, fused.results[i].strides), .store = true, .root = i});
  }
  for (const Instruction* check : fused.checks) {
    const Shape& shape = check->operand(0)->shape();
    if (fused.RoleOf(shape) == Role::kOther) tracer.Elsewhere(check);
    else tracer.Visit(check->operand(0), iteration.IndexOf(space, fused, shape));
  }
  return std::move(tracer.trace);
}

}  // namespace tenon
