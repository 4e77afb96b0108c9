// OverwritesOf: which results of a planned kernel may be made in an operand's memory.
//
// Loops, rows and columns: where every element of the operand is read only in the iteration that stores the result's element at the same
// address (the index expressions of all its reads are that of the store), and in no pass after the one that stores. An iteration
// loads before it stores. Scatters and updates of a slice write into what the copy left; a sort has read a row before it writes it, and so
// has a product whose tiles are as wide as its rows are long.
#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "backends/codegen/index/access_trace.h"
#include "backends/codegen/index/contraction_index.h"
#include "backends/codegen/plan/check_plan.h"

namespace tenon {
namespace {

using Parameters = absl::flat_hash_set<const Instruction*>;

bool SameWidth(const Instruction& parameter, const Shape& result) {
  return result.is_array() && ByteWidth(parameter.shape().element_type()) == ByteWidth(result.element_type());
}

// Dims of the same sizes, elements at the same addresses.
bool SamePlaces(const FusedKernel& f, const Instruction& parameter, const Shape& result, size_t leaf) {
  if (!SameWidth(parameter, result) || !Shape::SameDims(parameter.shape(), result)) return false;
  const std::vector<Dim>&from = f.operands[static_cast<size_t>(parameter.parameter_number())].strides, &to = f.results[leaf].strides;
  for (size_t d = 0; d < to.size(); ++d) {
    if (!KnownOne(result.dim(static_cast<int64_t>(d))) && !KnownEqual(from[d], to[d])) return false;
  }
  return true;
}

// The parameters that `op` is computed of, short of finished reductions and of what row scratch keeps.
void AddReads(const FusedKernel& f, const Instruction* op, const Parameters& kept, Parameters* seen, Parameters* reads) {
  if (!seen->insert(op).second || kept.contains(op) || absl::c_linear_search(f.reduces, op)) return;
  if (op->opcode() == Opcode::kParameter) reads->insert(op);
  for (const Instruction* o : op->operands()) AddReads(f, o, kept, seen, reads);
}

// By passes of a row or column kernel: what each reads, and which stores a root. Any other kernel is one pass.
struct Passes {
  std::vector<Parameters> reads;
  std::vector<size_t> stores;  // by root; of one that lends its memory the pass that writes there first
};
Passes PassesOf(const FusedKernel& f, const KernelPlan& plan) {
  Passes passes{.reads = std::vector<Parameters>(std::max<size_t>(plan.phases.size(), 1)),
                .stores = std::vector<size_t>(f.roots.size(), 0)};
  Parameters kept;
  for (size_t p = 0; p < plan.phases.size(); ++p) {
    Parameters seen;
    auto add = [&](const Instruction* op) { AddReads(f, op, kept, &seen, &passes.reads[p]); };
    for (int64_t r : plan.phases[p].reduces) absl::c_for_each(f.order[static_cast<size_t>(r)]->operands(), add);
    for (int64_t i : plan.phases[p].roots) {
      add(f.roots[static_cast<size_t>(i)]);
      passes.stores[static_cast<size_t>(i)] = p;
    }
    for (int64_t k : plan.phases[p].kept) add(f.order[static_cast<size_t>(k)]);
    for (const PlanPhase::Lent& l : plan.phases[p].lent) add(f.order[static_cast<size_t>(l.value)]);
    if (p + 1 == plan.phases.size()) absl::c_for_each(f.checks, add);
    if (RowLength(plan).is_constant()) {  // else rows may be too long for it
      for (int64_t k : plan.phases[p].kept) kept.insert(f.order[static_cast<size_t>(k)]);
    }
    for (const PlanPhase::Lent& l : plan.phases[p].lent) kept.insert(f.order[static_cast<size_t>(l.value)]);
  }
  for (size_t p = 0; p < plan.phases.size(); ++p) {
    for (const PlanPhase::Lent& l : plan.phases[p].lent) passes.stores[static_cast<size_t>(l.root)] = p;
  }
  return passes;
}

bool ReadAfter(const Passes& passes, const Instruction* parameter, size_t pass) {
  for (size_t p = pass + 1; p < passes.reads.size(); ++p) {
    if (passes.reads[p].contains(parameter)) return true;
  }
  return false;
}

std::vector<LaunchPlan::Pair> OverwritesOfLoops(const FusedKernel& f, const KernelPlan& plan) {
  IndexSpace space;
  const AccessTrace trace = TraceAccesses(space, f, Iteration(space, f, plan.loops));
  const Passes passes = PassesOf(f, plan);
  std::vector<LaunchPlan::Pair> pairs;
  for (size_t leaf = 0; leaf < f.roots.size(); ++leaf) {
    const Shape& shape = RootShape(f, leaf);
    if (!shape.is_array() || f.RoleOf(shape) != Role::kFull) continue;
    const auto store = absl::c_find_if(trace.uses, [&](const MemoryUse& u) { return u.store && u.root == leaf; });
    if (store == trace.uses.end()) continue;
    for (const Instruction* p : f.computation->parameters()) {
      if (!SameWidth(*p, shape) || trace.elsewhere.contains(p) || ReadAfter(passes, p, passes.stores[leaf])) continue;
      bool read = false, same = true;
      for (const MemoryUse& use : trace.uses) {
        if (use.store || use.op != p) continue;
        read = true;
        same &= use.offset == store->offset;
      }
      if (read && same) pairs.push_back({p->parameter_number(), static_cast<int64_t>(leaf)});
    }
  }
  return pairs;
}

// Is term k of an element in column n read as far from its row's first one as k is from 0, and the element stored so far as n? Then both
// rows lie at one place.
bool RowsLieAlike(IndexSpace& space, const Iteration& iteration, Index read, Index stored) {
  const Index columns = iteration.vars.back(), apart = space.Combine(read, 1, stored, -1);
  if (apart->kind != IndexNode::Kind::kSum || !(apart->addend == Dim(0)) || apart->terms.size() != 2) return false;
  auto is = [&](const IndexNode::Term& term, bool column, int64_t coefficient) {
    const bool summed = term.node->kind == IndexNode::Kind::kVar && !absl::c_linear_search(iteration.vars, term.node);
    return term.coefficient == Dim(coefficient) && (column ? term.node == columns : summed);
  };
  const IndexNode::Term &one = apart->terms[0], &other = apart->terms[1];
  return (is(one, true, -1) && is(other, false, 1)) || (is(other, true, -1) && is(one, false, 1));
}

// A row of the result is a row of the first operand times the second one, as long as that: a tile that has all columns has read its rows,
// and nobody else does, when it stores them.
std::vector<LaunchPlan::Pair> OverwritesOfProduct(const FusedKernel& f, const KernelPlan& plan) {
  const auto dot = absl::c_find_if(f.order, [](const Instruction* op) { return op->opcode() == Opcode::kDot; });
  if (dot == f.order.end() || absl::c_count_if(f.order, [](const Instruction* op) { return IsContraction(*op); }) != 1) return {};
  const Instruction& p = *(*dot)->operand(0);
  if (p.opcode() != Opcode::kParameter || p.user_count() != 1 || (*dot)->operand(1) == &p) return {};
  const Dim columns = plan.loops.back().extent;
  const std::vector<Dim> summed = SummedExtents(**dot);
  if (summed.size() != 1 || !KnownEqual(summed[0], columns) || columns.constant_or(plan.block + 1) > plan.block) return {};
  if (!plan.masked_tail && columns.constant() % plan.lanes != 0) return {};  // what is left goes column by column
  IndexSpace space;
  const Iteration iteration(space, f, plan.loops);
  const AccessTrace trace = TraceAccesses(space, f, iteration);
  auto reads = [&](const MemoryUse& use) { return !use.store && use.op == &p; };
  const auto read = absl::c_find_if(trace.uses, reads);
  if (trace.elsewhere.contains(&p) || absl::c_count_if(trace.uses, reads) != 1) return {};
  std::vector<LaunchPlan::Pair> pairs;
  for (const MemoryUse& use : trace.uses) {
    if (!use.store || !SameWidth(p, RootShape(f, use.root)) || !RowsLieAlike(space, iteration, read->offset, use.offset)) continue;
    pairs.push_back({p.parameter_number(), static_cast<int64_t>(use.root)});
  }
  return pairs;
}

// What a scatter or an update of a slice writes into, where nothing else reads it.
std::vector<LaunchPlan::Pair> OverwritesOfCopies(const FusedKernel& f) {
  std::vector<LaunchPlan::Pair> pairs;
  for (const LaunchPlan::Pair& copy : f.copies) {
    const Instruction& p = *f.computation->parameter(copy.operand);
    const size_t leaf = static_cast<size_t>(copy.leaf);
    const Shape& shape = f.updated != nullptr ? f.updated->shape() : RootShape(f, leaf);
    const Instruction& op = f.updated != nullptr ? *f.updated : *f.serial;
    if (p.user_count() == 1 && absl::c_count(op.operands(), &p) == 1 && SamePlaces(f, p, shape, leaf)) pairs.push_back(copy);
  }
  return pairs;
}

std::vector<LaunchPlan::Pair> OverwritesOfSort(const FusedKernel& f) {
  std::vector<LaunchPlan::Pair> pairs;
  for (const Instruction* p : f.computation->parameters()) {
    if (!absl::c_all_of(p->users(), [&](const Instruction* u) { return u == f.serial; })) continue;
    for (size_t leaf = 0; leaf < f.roots.size(); ++leaf) {
      if (SamePlaces(f, *p, RootShape(f, leaf), leaf)) pairs.push_back({p->parameter_number(), static_cast<int64_t>(leaf)});
    }
  }
  return pairs;
}

}  // namespace

std::vector<LaunchPlan::Pair> OverwritesOf(const FusedKernel& f, const KernelPlan& plan) {
  if (f.updated != nullptr || plan.kind == PlanKind::kScatter) return OverwritesOfCopies(f);
  if (f.serial != nullptr) return f.serial->opcode() == Opcode::kSort ? OverwritesOfSort(f) : std::vector<LaunchPlan::Pair>();
  std::vector<LaunchPlan::Pair> pairs = OverwritesOfLoops(f, plan);
  if (plan.kind == PlanKind::kContraction) absl::c_copy(OverwritesOfProduct(f, plan), std::back_inserter(pairs));
  return pairs;
}

}  // namespace tenon
