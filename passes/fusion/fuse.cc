// Fuse: carries out what Clusters decided: one fusion instruction per cluster.
//
// After assign-layout, before lower-kernels.
#include "absl/strings/str_cat.h"
#include "hlo/check.h"
#include "hlo/own_calls.h"
#include "passes/expand/control_flow.h"
#include "passes/fusion/cluster.h"
#include "passes/pass.h"

namespace tenon {
namespace {

class FusionBuilder {
 public:
  FusionBuilder(Computation* computation, const Clusters& clusters, PassContext& context)
      : computation_(computation), clusters_(clusters), context_(context) {}

  bool Run() {
    if (clusters_.all().empty()) return false;
    const std::vector<Instruction*> order = computation_->PostOrder();
    for (size_t i = 0; i < order.size(); ++i) position_[order[i]] = static_cast<int64_t>(i);
    for (const auto& c : clusters_.all()) Build(c.get());
    Rewire(order);
    RemoveFused(order);
    return true;
  }

 private:
  // Operands' clusters first. The clusters form no cycle (Clusters checks it).
  void Build(Cluster* c) {
    State& state = states_[c];
    if (state == State::kDone) return;
    TENON_CHECK(state != State::kBuilding, absl::StrCat("cycle of fusions at ", c->lead->name()));
    state = State::kBuilding;
    std::vector<Instruction*> members = c->members;
    std::sort(members.begin(), members.end(), [&](Instruction* a, Instruction* b) { return position_[a] < position_[b]; });
    std::vector<Instruction*> externals = Externals(*c, members);
    for (Instruction* e : externals) BuildProducers(e);
    MakeFusion(*c, members, externals);
    states_[c] = State::kDone;
  }

  static std::vector<Instruction*> Externals(const Cluster& c, const std::vector<Instruction*>& members) {
    std::vector<Instruction*> externals;
    absl::flat_hash_set<const Instruction*> seen;
    for (Instruction* m : members) {
      for (Instruction* o : m->operands()) {
        if (!c.contains.contains(o) && seen.insert(o).second) externals.push_back(o);
      }
    }
    return externals;
  }

  // What a value outside of the clusters hangs on: view ops and framework calls may read fusions that are not built yet. Their
  // operands are rewired at the end, so only a value that a cluster itself makes must exist now.
  void BuildProducers(Instruction* value) {
    if (replacement_.contains(value) || clusters_.stays_outside(value)) return;
    for (Cluster* c : clusters_.homes(value)) {
      if (c->results.contains(value)) return Build(c);
    }
    TENON_CHECK(clusters_.homes(value).empty(), absl::StrCat(value->name(), " is fused and not a result, but is used outside"));
  }

  Instruction* Replaced(Instruction* value) const {
    auto it = replacement_.find(value);
    return it == replacement_.end() ? value : it->second;
  }

  void MakeFusion(const Cluster& c, const std::vector<Instruction*>& members, const std::vector<Instruction*>& externals) {
    Computation* fused = computation_->module()->AddComputation(absl::StrCat("fused_", c.lead->name()));
    absl::flat_hash_map<const Instruction*, Instruction*> inside;
    std::vector<Instruction*> operands;
    for (Instruction* e : externals) {
      inside[e] = fused->AddParameter(static_cast<int64_t>(operands.size()), e->shape());
      operands.push_back(Replaced(e));
    }
    std::vector<Instruction*> results;
    for (Instruction* m : members) {
      std::vector<Instruction*> new_operands;
      for (Instruction* o : m->operands()) new_operands.push_back(inside.at(o));
      inside[m] = fused->Add(m->Clone(new_operands));
      if (c.results.contains(m)) results.push_back(m);
    }
    TENON_CHECK(!results.empty(), absl::StrCat("fusion of ", c.lead->name(), " has no result"));
    Instruction* fusion = AddFusion(c, fused, results, inside, operands);
    for (size_t i = 0; i < results.size(); ++i) {
      Instruction* value = fusion;
      if (results.size() > 1) {
        value = computation_->Add(Opcode::kGetTupleElement, results[i]->shape(), {fusion});
        value->mutable_attrs().set(Attr::kTupleIndex, static_cast<int64_t>(i));
      }
      replacement_[results[i]] = value;
    }
    fusions_.push_back(fusion);
    context_.Note("fuse", "fused", *c.lead, absl::StrCat(std::string(FusionFormName(c.form)), " kernel ", fusion->name()),
                  {{"instructions", static_cast<double>(members.size())}, {"results", static_cast<double>(results.size())},
                   {"cost", static_cast<double>(c.cost)}, {"bytes_saved", BytesSaved(c, members)}, {"flops", Flops(members)}});
  }

  // Memory traffic that fusing avoids: each member that is computed and stays inside would be written once and read by each user.
  // 0 where sizes are symbolic.
  static double BytesSaved(const Cluster& c, const std::vector<Instruction*>& members) {
    double bytes = 0;
    for (const Instruction* m : members) {
      if (c.results.contains(m) || !m->shape().is_array() || m->operand_count() == 0 || m->opcode() == Opcode::kBroadcast) continue;
      bytes += static_cast<double>(m->shape().byte_size().constant_or(0)) * static_cast<double>(1 + m->user_count());
    }
    return bytes;
  }

  // One per element computed; a reduction one per element read.
  static double Flops(const std::vector<Instruction*>& members) {
    double flops = 0;
    for (const Instruction* m : members) {
      const Shape& counted = m->opcode() == Opcode::kReduce ? m->operand(0)->shape() : m->shape();
      if (IsPointwise(*m) || m->opcode() == Opcode::kReduce) flops += static_cast<double>(counted.num_elements().constant_or(0));
    }
    return flops;
  }

  Instruction* AddFusion(const Cluster& c, Computation* fused, const std::vector<Instruction*>& results,
                         const absl::flat_hash_map<const Instruction*, Instruction*>& inside,
                         const std::vector<Instruction*>& operands) {
    Shape shape = results[0]->shape();
    Instruction* root = inside.at(results[0]);
    if (results.size() > 1) {
      std::vector<Shape> shapes;
      std::vector<Instruction*> roots;
      for (Instruction* r : results) {
        shapes.push_back(r->shape());
        roots.push_back(inside.at(r));
      }
      shape = Shape::Tuple(std::move(shapes));
      root = fused->Add(Opcode::kTuple, shape, roots);
    }
    fused->set_root(root);
    Instruction* fusion = computation_->Add(Opcode::kFusion, shape, operands, absl::StrCat("fusion_", c.lead->name()));
    fusion->mutable_attrs().set(Attr::kCalls, fused);
    SetFusionForm(fusion, c.form);
    fusion->metadata() = c.lead->metadata();
    return fusion;
  }

  // Everything that stays reads the fusions' results.
  void Rewire(const std::vector<Instruction*>& order) {
    for (Instruction* op : order) {
      if (!clusters_.stays_outside(op)) continue;
      for (int64_t i = 0; i < op->operand_count(); ++i) {
        if (auto it = replacement_.find(op->operand(i)); it != replacement_.end()) op->ReplaceOperand(i, it->second);
      }
    }
    for (Instruction* fusion : fusions_) {  // operands that were fused later than the fusion was made cannot be, but views can
      for (int64_t i = 0; i < fusion->operand_count(); ++i) {
        if (auto it = replacement_.find(fusion->operand(i)); it != replacement_.end()) fusion->ReplaceOperand(i, it->second);
      }
    }
    if (auto it = replacement_.find(computation_->root()); it != replacement_.end()) computation_->set_root(it->second);
  }

  void RemoveFused(const std::vector<Instruction*>& order) {
    for (auto it = order.rbegin(); it != order.rend(); ++it) {
      Instruction* op = *it;
      const bool fused = !clusters_.homes(op).empty() && !clusters_.stays_outside(op);
      const bool unused_outside = clusters_.stays_outside(op) && op->opcode() != Opcode::kParameter && !op->HasSideEffect();
      if ((fused || unused_outside) && op->users().empty() && op != computation_->root()) computation_->Remove(op);
    }
  }

  enum class State : uint8_t { kNew, kBuilding, kDone };
  Computation* computation_;
  const Clusters& clusters_;
  PassContext& context_;
  absl::flat_hash_map<const Instruction*, int64_t> position_;
  absl::flat_hash_map<const Cluster*, State> states_;
  absl::flat_hash_map<const Instruction*, Instruction*> replacement_;
  std::vector<Instruction*> fusions_;
};

bool FuseIn(Computation* c, PassContext& context) {
  Clusters clusters(c, context);
  clusters.Form();
  FusionBuilder builder(c, clusters, context);
  return builder.Run();
}

}  // namespace

absl::StatusOr<bool> Fuse(Module& module, PassContext& context) {
  bool changed = false;
  for (Computation* c : ControlComputations(module)) changed |= FuseIn(c, context);
  if (changed) module.RemoveUnreachableComputations();
  return changed;
}

}  // namespace tenon
