// Structural equality of attributes, computations and modules, whatever names, ids and dim tables they have.
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "hlo/module.h"

namespace tenon {
namespace {

bool Fail(std::string* why, std::string text) {
  if (why != nullptr && why->empty()) *why = std::move(text);
  return false;
}

// Canonical expressions print alike whatever table owns them.
bool SameDim(Dim a, Dim b) {
  return a == b || (!a.is_constant() && !b.is_constant() && a.ToString() == b.ToString());
}

bool SameDims(absl::Span<const Dim> a, absl::Span<const Dim> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), SameDim);
}

bool SameShape(const Shape& a, const Shape& b) {
  if (a == b) return true;
  if (a.element_type() != b.element_type() || !SameDims(a.dims(), b.dims()) ||
      a.minor_to_major() != b.minor_to_major() || a.layout_suffix() != b.layout_suffix() ||
      a.elements().size() != b.elements().size()) {
    return false;
  }
  for (int64_t i = 0; i < a.rank(); ++i) {
    if (a.is_dynamic(i) != b.is_dynamic(i)) return false;
  }
  return std::equal(a.elements().begin(), a.elements().end(), b.elements().begin(), SameShape);
}

// Remembers pairs already found equal: regions are shared by many instructions.
class Comparison {
 public:
  bool Computations(const Computation& a, const Computation& b, std::string* why) {
    if (&a == &b) return true;
    auto [it, is_new] = seen_.try_emplace({&a, &b}, true);
    if (!is_new) return it->second;
    bool equal = Compare(a, b, why);
    seen_[{&a, &b}] = equal;
    return equal;
  }

  bool Attrs(const Instruction& a, const Instruction& b, std::string* why) {
    auto ia = a.attrs().begin(), ib = b.attrs().begin();
    for (; ia != a.attrs().end() && ib != b.attrs().end(); ++ia, ++ib) {
      if (ia->first != ib->first || !Values(ia->second, ib->second, why)) {
        return Fail(why, absl::StrCat("attribute ", std::string(AttrName(ia->first)), " of ",
                                      a.name(), " and ", b.name()));
      }
    }
    if (ia != a.attrs().end() || ib != b.attrs().end() ||
        a.attrs().unknown != b.attrs().unknown ||
        (a.attrs().has(Attr::kBackendConfig) &&
         a.attrs().backend_config_is_json != b.attrs().backend_config_is_json)) {
      return Fail(why, absl::StrCat("attributes of ", a.name(), " and ", b.name()));
    }
    return true;
  }

  bool Instructions(const Instruction& a, const Instruction& b, std::string* why) {
    if (a.opcode() != b.opcode() || !SameShape(a.shape(), b.shape()) ||
        a.operand_count() != b.operand_count()) {
      return Fail(why, absl::StrCat("opcode, shape or operand count: ", a.name(), " = ",
                                    a.shape().ToString(true), " ",
                                    std::string(OpcodeName(a.opcode())), " and ", b.name(), " = ",
                                    b.shape().ToString(true), " ",
                                    std::string(OpcodeName(b.opcode()))));
    }
    if (a.opcode() == Opcode::kParameter && a.parameter_number() != b.parameter_number()) {
      return Fail(why, absl::StrCat("parameter numbers of ", a.name(), " and ", b.name()));
    }
    if (a.opcode() == Opcode::kConstant && !(a.literal() == b.literal())) {
      return Fail(why, absl::StrCat("values of constants ", a.name(), " and ", b.name()));
    }
    return Attrs(a, b, why);
  }

 private:
  bool Values(const AttrValue& a, const AttrValue& b, std::string* why) {
    if (a.index() != b.index()) return false;
    if (auto* ca = std::get_if<Computation*>(&a)) {
      return Computations(**ca, *std::get<Computation*>(b), why);
    }
    if (auto* la = std::get_if<std::vector<Computation*>>(&a)) {
      const auto& lb = std::get<std::vector<Computation*>>(b);
      return std::equal(la->begin(), la->end(), lb.begin(), lb.end(),
                        [&](auto* x, auto* y) { return Computations(*x, *y, why); });
    }
    if (auto* sa = std::get_if<SliceSpec>(&a)) {
      const auto& sb = std::get<SliceSpec>(b);
      return SameDims(sa->starts, sb.starts) && SameDims(sa->limits, sb.limits) &&
             sa->strides == sb.strides;
    }
    if (auto* da = std::get_if<std::vector<Dim>>(&a)) return SameDims(*da, std::get<std::vector<Dim>>(b));
    return a == b;
  }

  using Map = absl::flat_hash_map<const Instruction*, const Instruction*>;

  // Walks both graphs from a pair of instructions, matching operands by position.
  bool Match(const Instruction* a, const Instruction* b, Map& to_b, Map& to_a, std::string* why) {
    std::vector<std::pair<const Instruction*, const Instruction*>> work = {{a, b}};
    while (!work.empty()) {
      auto [x, y] = work.back();
      work.pop_back();
      auto [ix, new_x] = to_b.try_emplace(x, y);
      auto [iy, new_y] = to_a.try_emplace(y, x);
      if (ix->second != y || iy->second != x) {
        return Fail(why, absl::StrCat("the graphs differ at ", x->name(), " and ", y->name()));
      }
      if (!new_x) continue;
      if (!Instructions(*x, *y, why)) return false;
      if (x->control_predecessors().size() != y->control_predecessors().size()) {
        return Fail(why, absl::StrCat("control edges of ", x->name(), " and ", y->name()));
      }
      for (int64_t i = 0; i < x->operand_count(); ++i) work.push_back({x->operand(i), y->operand(i)});
      for (size_t i = 0; i < x->control_predecessors().size(); ++i) {
        work.push_back({x->control_predecessors()[i], y->control_predecessors()[i]});
      }
    }
    return true;
  }

  bool Compare(const Computation& a, const Computation& b, std::string* why) {
    if (a.instruction_count() != b.instruction_count() ||
        a.parameters().size() != b.parameters().size() ||
        a.execution_thread() != b.execution_thread() ||
        (a.root() == nullptr) != (b.root() == nullptr)) {
      return Fail(why, absl::StrCat("sizes of computations ", a.name(), " and ", b.name()));
    }
    Map to_b, to_a;
    to_b.reserve(a.instruction_count());
    to_a.reserve(a.instruction_count());
    for (size_t i = 0; i < a.parameters().size(); ++i) {
      if (!Match(a.parameter(i), b.parameter(i), to_b, to_a, why)) return false;
    }
    if (a.root() != nullptr && !Match(a.root(), b.root(), to_b, to_a, why)) return false;
    // What the root does not reach, in order.
    auto rest = [](const Computation& c, const Map& reached) {
      std::vector<const Instruction*> left;
      for (const Instruction* i : c.instructions()) {
        if (!reached.contains(i)) left.push_back(i);
      }
      return left;
    };
    std::vector<const Instruction*> left_a = rest(a, to_b), left_b = rest(b, to_a);
    if (left_a.size() != left_b.size()) {
      return Fail(why, absl::StrCat("dead instructions of ", a.name(), " and ", b.name()));
    }
    for (size_t i = 0; i < left_a.size(); ++i) {
      if (!Match(left_a[i], left_b[i], to_b, to_a, why)) return false;
    }
    return true;
  }

  absl::flat_hash_map<std::pair<const Computation*, const Computation*>, bool> seen_;
};

}  // namespace

bool StructurallyEqual(const Computation& a, const Computation& b, std::string* why) {
  return Comparison().Computations(a, b, why);
}

bool StructurallyEqual(const Module& a, const Module& b, std::string* why) {
  if (a.aliases != b.aliases) return Fail(why, "input_output_alias");
  if (a.is_scheduled != b.is_scheduled) return Fail(why, "is_scheduled");
  if (a.attributes != b.attributes) return Fail(why, "module attributes");
  if (a.entry_layout.has_value() != b.entry_layout.has_value()) {
    return Fail(why, "entry_computation_layout");
  }
  if (a.entry_layout) {
    const auto& [pa, ra] = *a.entry_layout;
    const auto& [pb, rb] = *b.entry_layout;
    if (!SameShape(ra, rb) || !std::equal(pa.begin(), pa.end(), pb.begin(), pb.end(), SameShape)) {
      return Fail(why, "entry_computation_layout");
    }
  }
  if ((a.entry() == nullptr) != (b.entry() == nullptr)) return Fail(why, "entry");
  return a.entry() == nullptr || StructurallyEqual(*a.entry(), *b.entry(), why);
}

bool Instruction::IdenticalIgnoringOperands(const Instruction& a, const Instruction& b) {
  return Comparison().Instructions(a, b, nullptr);
}

}  // namespace tenon
