// Steps that make the graph of the entry smaller.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tools/lab/reduce/reduce_session.h"

namespace tenon::lab {
namespace {

// entry_computation_layout's layouts as the parameters' and the root's own.
void LayoutsIntoShapes(Module* module) {
  if (!module->entry_layout.has_value()) return;
  for (Instruction* p : module->entry()->parameters())
    p->mutable_shape() = module->entry_layout->first[p->parameter_number()];
  Instruction* root = module->entry()->root();
  if (root->shape().is_array()) root->mutable_shape() = module->entry_layout->second;
}

void StripInstruction(Instruction* op) {
  op->metadata() = Metadata();
  op->mutable_attrs().unknown.clear();
  for (Attr a : {Attr::kSharding, Attr::kFrontendAttributes, Attr::kStatistics, Attr::kOrigin,
                 Attr::kBackendConfig}) {
    // What a custom call is asked to do stands in its config.
    if (a != Attr::kBackendConfig || op->opcode() != Opcode::kCustomCall)
      op->mutable_attrs().erase(a);
  }
}

void StripModule(Module* module) {
  module->aliases.clear();
  module->attributes.clear();
  module->origin_tables.clear();
}

// Tries to leave out ever smaller chunks of [0, n): `without(begin, end)` says whether that worked,
// upon which `count()` items are left.
template <typename Count, typename Without>
bool LeaveOut(const Session& s, Count&& count, Without&& without) {
  bool any = false;
  for (int64_t chunk = std::max<int64_t>(1, count() / 2);; chunk /= 2) {
    for (int64_t end = count(); end > 0 && !s.exhausted();) {
      const int64_t begin = std::max<int64_t>(0, end - chunk);
      const int64_t before = count();
      if (without(begin, end)) {
        any = true;
        end = std::min(count(), std::max<int64_t>(begin, end - (before - count())));
        if (count() < before) continue;
      }
      end = std::min(begin, count());
    }
    if (chunk <= 1) return any;
  }
}

std::vector<bool> Range(size_t n, size_t begin, size_t end) {
  std::vector<bool> keep(n, false);
  std::fill(keep.begin() + static_cast<int64_t>(begin), keep.begin() + static_cast<int64_t>(end),
            true);
  return keep;
}

// By halving, the last failing case on the way from one that fails to one that doesn't; positions
// count what is kept or left away.
template <typename Make>
bool Bisect(Session& s, std::string_view step, size_t fails_at, size_t passes_at, Make&& make) {
  std::optional<Case> found;
  while (fails_at > passes_at + 1 || passes_at > fails_at + 1) {
    const size_t middle = (fails_at + passes_at) / 2;
    std::optional<Case> candidate = make(middle);
    if (candidate && s.Fails(*candidate)) {
      found = std::move(candidate);
      fails_at = middle;
    } else {
      passes_at = middle;
    }
    if (s.exhausted()) break;
  }
  if (!found || SizeOf(*found) >= SizeOf(s.best())) return false;
  s.Accept(*std::move(found), step, /*values_stay=*/true);
  return true;
}

bool SameArray(const Instruction* a, const Instruction* b) {
  return a != b && Shape::Compatible(a->shape(), b->shape());
}

bool ReplaceByOperand(Session& s, Position at, const Instruction* op) {
  for (int64_t k = 0; k < op->operand_count(); ++k) {
    if (!SameArray(op, op->operand(k))) continue;
    const bool done = s.TryEdit("operand", [&](Case& c) {
      Instruction* i = At(*c.module, at);
      i->ReplaceAllUsesWith(i->operand(k));
      return true;
    });
    if (done) return true;
  }
  return false;
}

// All of an opcode at once, where the failure wants parts of the program to stay alike; asked of the last of them.
bool ReplaceAlikeByOperands(Session& s, Position at, const Instruction* op, const std::vector<Instruction*>& all) {
  const auto like = [&](const Instruction* other) { return other->opcode() == op->opcode(); };
  const auto begin = all.begin(), here = begin + static_cast<std::ptrdiff_t>(at.instruction);
  if (std::none_of(begin, here, like) || std::any_of(here + 1, all.end(), like)) return false;
  for (int64_t k = 0; k < op->operand_count(); ++k) {
    const bool done = s.TryEdit("operands", [&](Case& c) {
      for (Instruction* i : At(*c.module, at)->parent()->instructions()) {
        if (like(i) && k < i->operand_count() && SameArray(i, i->operand(k))) i->ReplaceAllUsesWith(i->operand(k));
      }
      return true;
    });
    if (done) return true;
  }
  return false;
}

bool ReplaceByValue(Session& s, Position at, const Instruction* op, bool constant) {
  if (op->opcode() == Opcode::kParameter || op == s.entry()->root()) return false;
  if (op->opcode() == Opcode::kConstant && constant) return false;
  if (constant && (!op->shape().is_array() || !op->shape().is_static() ||
                   op->shape().num_elements_constant() > 16))
    return false;
  const std::optional<Literal> value = ValueOf(op, s.values());
  if (!value) return false;
  return s.TryEdit(
      constant ? "constant" : "parameter",
      [&](Case& c) {
        Instruction* i = At(*c.module, at);
        Instruction* instead = constant ? i->parent()->AddConstant(*value)
                                        : Materialize(&c, i->shape(), *value, i->name());
        if (instead == nullptr) return false;
        if (constant && i->shape().has_layout()) instead->mutable_shape() = i->shape();
        i->ReplaceAllUsesWith(instead);
        if (i->HasSideEffect()) i->parent()->Remove(i);
        return true;
      },
      /*values_stay=*/true);
}

// One use of an operand's operand instead of the operand, where other users keep it.
bool Bypass(Session& s, Position at, const Instruction* op) {
  for (int64_t k = 0; k < op->operand_count(); ++k) {
    for (int64_t j = 0; j < op->operand(k)->operand_count(); ++j) {
      if (!SameArray(op->operand(k), op->operand(k)->operand(j))) continue;
      const bool done = s.TryEdit("bypass", [&](Case& c) {
        Instruction* i = At(*c.module, at);
        i->ReplaceOperand(k, i->operand(k)->operand(j));
        return true;
      });
      if (done) return true;
    }
  }
  return false;
}

// An earlier value of the same shape in its place: a parameter, a constant, or what is computed alike.
bool Merge(Session& s, Position at, const Instruction* op, const std::vector<Instruction*>& all) {
  int64_t tried = 0;
  for (size_t j = 0; j < at.instruction && tried < 8; ++j) {
    const Instruction* other = all[j];
    const bool leaf = other->opcode() == Opcode::kParameter || other->opcode() == Opcode::kConstant;
    if (!SameArray(op, other) || !(leaf || Instruction::Identical(*op, *other))) continue;
    ++tried;
    const bool done = s.TryEdit("merge", [&](Case& c) {
      At(*c.module, at)->ReplaceAllUsesWith(At(*c.module, {at.computation, j}));
      return true;
    });
    if (done) return true;
  }
  return false;
}

bool RemoveEffect(Session& s, Position at, const Instruction* op) {
  if (op->user_count() > 0 || op == op->parent()->root() || op->opcode() == Opcode::kParameter)
    return false;
  return s.TryEdit(
      "effect",
      [&](Case& c) {
        Instruction* i = At(*c.module, at);
        i->ClearControlEdges();
        i->parent()->Remove(i);
        return true;
      },
      /*values_stay=*/true);
}

}  // namespace

bool StripText(Session& s) {
  auto strip = [](Case& c) {
    StripModule(c.module.get());
    for (Computation* computation : c.module->computations()) {
      for (Instruction* op : computation->instructions()) StripInstruction(op);
    }
    return true;
  };
  const bool all = s.TryEdit("strip", [&](Case& c) {
    LayoutsIntoShapes(c.module.get());
    c.module->entry_layout.reset();
    c.module->is_scheduled = false;
    return strip(c);
  });
  if (all) return true;
  bool any = s.TryEdit("strip text", strip);
  any |= s.TryEdit("strip header", [](Case& c) { return StripModule(c.module.get()), true; });
  any |= s.TryEdit("unschedule", [](Case& c) { return c.module->is_scheduled = false, true; });
  any |= s.TryEdit("entry layout", [](Case& c) {
    LayoutsIntoShapes(c.module.get());
    c.module->entry_layout.reset();
    return true;
  });
  return any;
}

bool ReduceOutputs(Session& s) {
  auto count = [&] { return static_cast<int64_t>(Outputs(*s.best().module).size()); };
  const Instruction* root = s.entry()->root();
  if (count() == 1 && root->opcode() == Opcode::kTuple) {
    return s.TryEdit(
        "untuple", [](Case& c) { return SetOutputs(&c, Outputs(*c.module)), true; }, true);
  }
  if (count() < 2) return false;
  return LeaveOut(s, count, [&](int64_t begin, int64_t end) {
    return s.TryEdit(
        "outputs",
        [&](Case& c) {
          std::vector<Instruction*> outputs = Outputs(*c.module);
          outputs.erase(outputs.begin() + begin, outputs.begin() + end);
          if (outputs.empty()) return false;
          SetOutputs(&c, outputs);
          return true;
        },
        /*values_stay=*/true);
  });
}

bool CutEnds(Session& s) {
  size_t n = s.entry()->instructions().size();
  bool any = Bisect(s, "prefix", n, 0,
                    [&](size_t end) { return Cut(s.best(), Range(n, 0, end), s.values()); });
  n = s.entry()->instructions().size();
  any |= Bisect(s, "suffix", 0, n,
                [&](size_t begin) { return Cut(s.best(), Range(n, begin, n), s.values()); });
  return any;
}

bool CutChunks(Session& s) {
  return LeaveOut(
      s, [&] { return s.entry()->instruction_count(); },
      [&](int64_t begin, int64_t end) {
        const size_t n = static_cast<size_t>(s.entry()->instruction_count());
        std::vector<bool> keep(n, true);
        std::fill(keep.begin() + begin, keep.begin() + end, false);
        return s.Try(Cut(s.best(), keep, s.values()), "chunk", /*values_stay=*/true);
      });
}

bool TryEverywhere(Session& s, const Attempt& attempt) {
  bool any = false;
  for (size_t c = s.best().module->computations().size(); c-- > 0;) {
    for (int64_t i = INT64_MAX; i > 0 && !s.exhausted();) {
      // What was accepted has changed the module: look again at what stands at that place.
      const std::vector<Computation*> computations = s.best().module->computations();
      if (c >= computations.size()) break;
      const std::vector<Instruction*> all = computations[c]->instructions();
      i = std::min<int64_t>(i, static_cast<int64_t>(all.size())) - 1;
      if (i < 0) break;
      if (attempt(Position{c, static_cast<size_t>(i)}, all)) any = true, i += 2;
    }
  }
  return any;
}

bool ReduceInstructions(Session& s) {
  return TryEverywhere(s, [&](const Position& at, const std::vector<Instruction*>& all) {
    const Instruction* op = all[at.instruction];
    const bool entry = op->parent() == s.entry();
    return RemoveEffect(s, at, op) || ReplaceByOperand(s, at, op) || (entry && ReplaceByValue(s, at, op, false)) ||
           (entry && ReplaceByValue(s, at, op, true)) || Bypass(s, at, op) || Merge(s, at, op, all) ||
           ReplaceAlikeByOperands(s, at, op, all);
  });
}

}  // namespace tenon::lab
