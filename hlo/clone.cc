// Copies of computations and modules.
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "hlo/module.h"

namespace tenon {
namespace {

using Remap = std::function<Computation*(Computation*)>;

void ImportShape(DimTable& table, Shape* shape) {
  for (int64_t i = 0; i < shape->rank(); ++i) shape->set_dim(i, table.Import(shape->dim(i)));
  for (size_t i = 0; i < shape->elements().size(); ++i) {
    ImportShape(table, &shape->mutable_element(i));
  }
}

void ImportDims(DimTable& table, Instruction* i) {
  ImportShape(table, &i->mutable_shape());
  if (auto* slice = i->mutable_attrs().mutable_get<SliceSpec>(Attr::kSlice)) {
    for (Dim& d : slice->starts) d = table.Import(d);
    for (Dim& d : slice->limits) d = table.Import(d);
  }
}

void RemapCalls(const Remap& remap, Instruction* i) {
  for (const auto& [attr, value] : Attributes(i->attrs())) {
    if (auto* c = std::get_if<Computation*>(&value)) {
      i->mutable_attrs().set(attr, remap(*c));
    } else if (auto* list = std::get_if<std::vector<Computation*>>(&value)) {
      std::vector<Computation*> mapped;
      for (Computation* c : *list) mapped.push_back(remap(c));
      i->mutable_attrs().set(attr, std::move(mapped));
    }
  }
}

}  // namespace

Computation* Computation::CloneInto(Module* module, std::string name, const Remap& remap) const {
  Computation* clone = module->AddComputation(std::move(name));
  clone->execution_thread_ = execution_thread_;
  const bool same_table = module->shared_dims() == module_->shared_dims();
  absl::flat_hash_map<const Instruction*, Instruction*> map;
  map.reserve(instructions_.size());
  for (const Instruction* i : PostOrder()) {
    std::vector<Instruction*> operands;
    operands.reserve(i->operands_.size());
    for (const Instruction* operand : i->operands_) operands.push_back(map.at(operand));
    std::unique_ptr<Instruction> copy = i->Clone(operands);
    if (!same_table) ImportDims(module->dims(), copy.get());
    if (remap && !i->called_computations().empty()) RemapCalls(remap, copy.get());
    Instruction* added = clone->Add(std::move(copy));
    for (const Instruction* pred : i->control_predecessors_) {
      added->AddControlPredecessor(map.at(pred));
    }
    map[i] = added;
  }
  std::vector<Instruction*> order;
  order.reserve(instructions_.size());
  for (const auto& i : instructions_) order.push_back(map.at(i.get()));
  clone->Reorder(order);
  if (root_ != nullptr) clone->set_root(map.at(root_));
  return clone;
}

std::unique_ptr<Module> Module::Clone() const {
  auto clone = std::make_unique<Module>(name_);
  clone->dims_ = dims_;
  absl::flat_hash_map<Computation*, Computation*> map;
  Remap remap = [&map](Computation* c) { return map.at(c); };
  for (Computation* c : computations()) map[c] = c->CloneInto(clone.get(), c->name(), remap);
  // The order of addition, too.
  std::vector<std::unique_ptr<Computation>> ordered;
  for (const auto& c : computations_) {
    Computation* copy = map.at(c.get());
    auto it = std::find_if(clone->computations_.begin(), clone->computations_.end(),
                           [copy](const auto& owned) { return owned.get() == copy; });
    ordered.push_back(std::move(*it));
    clone->computations_.erase(it);
  }
  clone->computations_ = std::move(ordered);
  if (entry_ != nullptr) clone->entry_ = map.at(entry_);
  for (const auto& [key, c] : scalar_computations_) clone->scalar_computations_[key] = map.at(c);
  clone->is_scheduled = is_scheduled;
  clone->aliases = aliases;
  clone->entry_layout = entry_layout;
  clone->attributes = attributes;
  clone->origin_tables = origin_tables;
  return clone;
}

}  // namespace tenon
