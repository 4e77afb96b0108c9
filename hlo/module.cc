#include "hlo/module.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "hlo/text/text.h"

namespace tenon {
namespace {

// `base`, or base's stem with the next free number.
std::string UniqueName(absl::flat_hash_map<std::string, int64_t>& names, std::string_view base) {
  std::string name(base);
  if (names.try_emplace(name, 0).second) return name;
  size_t dot = name.find_last_not_of("0123456789");
  if (dot != std::string::npos && dot > 0 && name[dot] == '.' && dot + 1 < name.size()) {
    name.resize(dot);
  }
  for (;;) {
    int64_t number = ++names[name];
    std::string candidate = absl::StrCat(name, ".", number);
    if (names.try_emplace(candidate, 0).second) return candidate;
  }
}

}  // namespace

Module::Module(std::string name) : Module(std::move(name), std::make_shared<DimTable>()) {}
Module::Module(std::string name, std::shared_ptr<DimTable> dims) : name_(std::move(name)), dims_(std::move(dims)) {}
Module::~Module() = default;

Computation* Module::AddComputation(std::string name) {
  name = UniqueName(computation_names_, name.empty() ? "computation" : name);
  computations_.push_back(std::make_unique<Computation>(std::move(name), this));
  return computations_.back().get();
}

std::vector<Computation*> Module::computations() const {
  std::vector<Computation*> order;
  absl::flat_hash_set<Computation*> visited;
  struct Frame {
    Computation* computation;
    std::vector<Computation*> callees;
    size_t next = 0;
  };
  auto callees = [](Computation* c) {
    std::vector<Computation*> called;
    for (const Instruction* i : c->instructions()) {
      for (Computation* callee : i->called_computations()) called.push_back(callee);
    }
    return called;
  };
  auto visit = [&](Computation* start) {
    if (start == nullptr || !visited.insert(start).second) return;
    std::vector<Frame> stack;
    stack.push_back({start, callees(start)});
    while (!stack.empty()) {
      Frame& top = stack.back();
      if (top.next < top.callees.size()) {
        Computation* callee = top.callees[top.next++];
        if (visited.insert(callee).second) stack.push_back({callee, callees(callee)});
      } else {
        order.push_back(top.computation);
        stack.pop_back();
      }
    }
  };
  for (const auto& c : computations_) {
    if (c.get() != entry_) visit(c.get());
  }
  visit(entry_);
  return order;
}

Computation* Module::ScalarComputation(Opcode opcode, PrimitiveType type) {
  Computation*& c = scalar_computations_[{opcode, type}];
  if (c == nullptr) {
    c = AddComputation(absl::StrCat(std::string(OpcodeName(opcode)), ".",
                                    std::string(PrimitiveTypeName(type))));
    Instruction* a = c->AddParameter(0, Shape::Scalar(type));
    Instruction* b = c->AddParameter(1, Shape::Scalar(type));
    c->set_root(c->Add(opcode, Shape::Scalar(type), {a, b}));
  }
  return c;
}

void Module::RemoveComputation(Computation* computation) {
  TENON_CHECK(computation != entry_, computation->name());
  Forget([computation](const Computation* c) { return c == computation; });
  std::erase_if(computations_, [&](const auto& c) { return c.get() == computation; });
}

void Module::Forget(absl::FunctionRef<bool(const Computation*)> dies) {
  absl::erase_if(scalar_computations_, [&](const auto& entry) { return dies(entry.second); });
}

int64_t Module::RemoveUnreachableComputations() {
  absl::flat_hash_set<const Computation*> reachable = {entry_};
  std::vector<Computation*> work = {entry_};
  while (!work.empty()) {
    Computation* c = work.back();
    work.pop_back();
    for (const Instruction* i : c->instructions()) {
      for (Computation* callee : i->called_computations()) {
        if (reachable.insert(callee).second) work.push_back(callee);
      }
    }
  }
  Forget([&reachable](const Computation* c) { return !reachable.contains(c); });
  return std::erase_if(computations_, [&](const auto& c) { return !reachable.contains(c.get()); });
}

int64_t Module::instruction_count() const {
  int64_t n = 0;
  for (const auto& c : computations_) n += c->instruction_count();
  return n;
}

std::string Module::UniqueInstructionName(std::string_view base) {
  return UniqueName(instruction_names_, base);
}

std::string Module::ToString() const { return Print(*this); }

}  // namespace tenon
