// Steps that leave the graph alone: dimensions, values, attributes, types, layouts.
#include <algorithm>
#include <cmath>

#include "hlo/sizes.h"
#include "tools/lab/reduce/reduce_dims.h"
#include "tools/lab/reduce/reduce_session.h"

namespace tenon::lab {
namespace {

// Sizes to try for a dimension of `n`, small first; 3 and 5 because tails like odd numbers.
std::vector<int64_t> SmallerSizes(int64_t n) {
  std::vector<int64_t> sizes;
  for (int64_t size : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{4}, int64_t{5}, n / 16, n / 8,
                       n / 4, n / 2, n - n / 4, n - 1}) {
    if (size >= 1 && size < n && (sizes.empty() || size > sizes.back())) sizes.push_back(size);
  }
  return sizes;
}

// Values of one literal, simpler ones first, each made from the current one.
using Simplify = Literal (*)(const Literal&);

Literal Filled(const Literal& l, double value) {
  return Literal::Full(l.type(), l.shape().constant_dims(), value);
}

Literal Rounded(const Literal& l) {
  Literal r = l;
  for (int64_t i = 0; i < l.num_elements(); ++i) {
    const double v = l.GetAsDouble(i);
    if (std::isfinite(v)) r.SetFromDouble(i, std::clamp(std::nearbyint(v), -16.0, 16.0));
  }
  return r;
}

Literal AwayFromZero(const Literal& l) {
  Literal r = l;
  for (int64_t i = 0; i < l.num_elements(); ++i) {
    const double v = l.GetAsDouble(i);
    if (std::isfinite(v) && v != 0)
      r.SetFromDouble(i, std::clamp(std::copysign(std::ceil(std::abs(v)), v), -16.0, 16.0));
  }
  return r;
}

Literal ZeroBetween(const Literal& l, int64_t begin, int64_t end) {
  Literal r = l;
  for (int64_t i = begin; i < end; ++i) r.SetFromDouble(i, 0);
  return r;
}

bool Simple(const Literal& l) {
  return l.shape().is_tuple() || !IsArrayType(l.type()) || IsComplex(l.type()) ||
         l.num_elements() == 0 || l.IsAllEqualTo(0);
}

// One literal of the case: an argument or a constant.
struct Slot {
  std::optional<Position> constant;
  size_t argument = 0;
};

const Literal* LiteralAt(const Case& c, const Slot& slot) {
  if (!slot.constant)
    return slot.argument < c.arguments.size() ? &c.arguments[slot.argument] : nullptr;
  const Instruction* op = At(*c.module, *slot.constant);
  return op != nullptr && op->has_literal() ? &op->literal() : nullptr;
}

bool TryLiteral(Session& s, const Slot& slot, Literal literal) {
  return s.TryEdit("value", [&](Case& c) {
    if (slot.constant) {
      At(*c.module, *slot.constant)->set_literal(std::move(literal));
    } else {
      c.arguments[slot.argument] = std::move(literal);
    }
    return true;
  });
}

bool SimplifyLiteral(Session& s, const Slot& slot) {
  auto now = [&] { return LiteralAt(s.best(), slot); };
  if (now() == nullptr || Simple(*now())) return false;
  if (TryLiteral(s, slot, Filled(*now(), 0)) ||
      (!now()->IsSplat() && TryLiteral(s, slot, Filled(*now(), 1))))
    return true;
  bool any = false;
  if (IsFloat(now()->type()))
    any = TryLiteral(s, slot, Rounded(*now())) || TryLiteral(s, slot, AwayFromZero(*now()));
  constexpr int64_t kMostChunks = 64;
  const int64_t n = now()->num_elements();
  for (int64_t chunk = n / 2; chunk >= std::max<int64_t>(1, n / kMostChunks) && !s.exhausted();
       chunk /= 2) {
    for (int64_t begin = 0; begin < n; begin += chunk) {
      const int64_t end = std::min(n, begin + chunk);
      any |= TryLiteral(s, slot, ZeroBetween(*now(), begin, end));
    }
  }
  return any;
}

// Dim `d` of the attribute changed by `change`, shapes following. An accepted edit may have left another instruction at `at`.
template <typename T, typename Change>
bool ChangeAttribute(Session& s, Position at, Attr attr, size_t d, Change&& change) {
  return s.TryEdit("attribute", [&](Case& c) {
    Instruction* op = At(*c.module, at);
    T* value = op == nullptr ? nullptr : op->mutable_attrs().mutable_get<T>(attr);
    if (value == nullptr || d >= value->dims.size() || !change(value)) return false;
    return Reinfer(c.module.get());
  });
}

bool SimplifyWindow(Session& s, Position at, const Window& window) {
  bool any = false;
  for (size_t d = 0; d < window.dims.size(); ++d) {
    any |= ChangeAttribute<Window>(s, at, Attr::kWindow, d,
                                   [d](Window* w) { return w->dims[d] = WindowDim{}, true; });
    for (auto field :
         {&WindowDim::stride, &WindowDim::base_dilation, &WindowDim::window_dilation}) {
      any |= ChangeAttribute<Window>(s, at, Attr::kWindow, d, [&](Window* w) {
        return std::exchange(w->dims[d].*field, 1) != 1;
      });
    }
    for (auto field : {&WindowDim::padding_low, &WindowDim::padding_high}) {
      any |= ChangeAttribute<Window>(s, at, Attr::kWindow, d, [&](Window* w) {
        return std::exchange(w->dims[d].*field, 0) != 0;
      });
    }
    any |= ChangeAttribute<Window>(
        s, at, Attr::kWindow, d, [&](Window* w) { return std::exchange(w->dims[d].reversed, false); });
  }
  return any;
}

bool SimplifyPadding(Session& s, Position at, const PaddingConfig& padding) {
  bool any = false;
  for (size_t d = 0; d < padding.dims.size(); ++d) {
    for (auto field : {&PaddingDim::low, &PaddingDim::high, &PaddingDim::interior}) {
      for (int64_t value : {0, 1}) {
        any |= ChangeAttribute<PaddingConfig>(s, at, Attr::kPadding, d, [&](PaddingConfig* p) {
          if (p->dims[d].*field == value || p->dims[d].*field == 0) return false;
          p->dims[d].*field = value;
          return true;
        });
      }
    }
  }
  return any;
}

// Looked up again after every edit: one that is accepted replaces the module.
bool SimplifyAttributes(Session& s, Position at) {
  bool any = false;
  const auto now = [&] { return At(*s.best().module, at); };
  const auto attribute = [&](Attr attr) { return now() == nullptr ? nullptr : now()->attrs().find(attr); };
  if (const AttrValue* window = attribute(Attr::kWindow)) any |= SimplifyWindow(s, at, Window(std::get<Window>(*window)));
  if (const AttrValue* padding = attribute(Attr::kPadding)) {
    any |= SimplifyPadding(s, at, PaddingConfig(std::get<PaddingConfig>(*padding)));
  }
  if (now() == nullptr) return any;
  std::vector<Attr> droppable;
  for (const auto& [attr, value] : now()->attrs()) {
    const auto& optional = now()->info().optional;
    if (std::find(optional.begin(), optional.end(), attr) != optional.end() && attr != Attr::kWindow) droppable.push_back(attr);
  }
  for (Attr attr : droppable) {
    any |= s.TryEdit("attribute", [&](Case& c) {
      Instruction* op = At(*c.module, at);
      if (op == nullptr) return false;
      op->mutable_attrs().erase(attr);
      return Reinfer(c.module.get());
    });
  }
  if (now() != nullptr && !now()->control_predecessors().empty()) {
    any |= s.TryEdit("control", [&](Case& c) { return At(*c.module, at)->ClearControlEdges(), true; });
  }
  return any;
}

void ClearLayouts(Shape* shape) {
  if (shape->is_array()) shape->clear_layout();
  shape->layout_suffix().clear();
  for (size_t k = 0; k < shape->elements().size(); ++k)
    ClearLayouts(&shape->mutable_element(static_cast<int64_t>(k)));
}

void RetypeShape(Shape* shape, PrimitiveType from, PrimitiveType to) {
  if (shape->element_type() == from) shape->set_element_type(to);
  for (size_t k = 0; k < shape->elements().size(); ++k)
    RetypeShape(&shape->mutable_element(static_cast<int64_t>(k)), from, to);
}

Literal Retyped(const Literal& l, PrimitiveType from, PrimitiveType to) {
  if (l.shape().is_tuple() || l.type() != from) return l;
  Literal r(Shape::Array(to, l.shape().constant_dims()));
  for (int64_t i = 0; i < l.num_elements(); ++i) {
    if (IsFloat(from)) {
      r.SetFromDouble(i, l.GetAsDouble(i));
    } else {
      r.SetFromInt64(i, l.GetAsInt64(i));
    }
  }
  return r;
}

// Every value of a type as one of a plainer type.
bool Retype(Session& s, PrimitiveType from, PrimitiveType to) {
  return s.TryEdit("type", [&](Case& c) {
    for (Computation* computation : c.module->computations()) {
      for (Instruction* op : computation->instructions()) {
        RetypeShape(&op->mutable_shape(), from, to);
        if (op->has_literal()) op->set_literal(Retyped(op->literal(), from, to));
      }
    }
    for (Literal& l : c.arguments) l = Retyped(l, from, to);
    c.module->entry_layout.reset();
    return true;
  });
}

bool PlainTypes(Session& s) {
  bool any = false;
  std::vector<PrimitiveType> types;
  for (const Computation* computation : s.best().module->computations()) {
    for (const Instruction* op : computation->instructions()) {
      for (const Shape& leaf : FlattenShape(op->shape())) {
        if (std::find(types.begin(), types.end(), leaf.element_type()) == types.end())
          types.push_back(leaf.element_type());
      }
    }
  }
  for (PrimitiveType t : types) {
    if (IsFloat(t) && t != PrimitiveType::kF32) any |= Retype(s, t, PrimitiveType::kF32);
    if (IsIntegral(t) && t != PrimitiveType::kS32) any |= Retype(s, t, PrimitiveType::kS32);
  }
  return any;
}

}  // namespace

namespace {

// The first size, small before large, that still fails.
bool Shrink(Session& s, const std::vector<DimClass>& classes, std::string_view step) {
  for (int64_t size : SmallerSizes(classes[0].size)) {
    for (bool trailing : {false, true}) {
      try {
        if (s.Try(Resized(s.best(), classes, size, trailing), step)) return true;
      } catch (const InternalError&) {  // sizes that no instruction can have
      }
      if (s.exhausted()) return false;
    }
  }
  return false;
}

}  // namespace

bool ReduceDims(Session& s) {
  if (HasSymbols(*s.best().module)) return ReduceSizes(s);
  bool any = false;
  for (size_t k = 0; !s.exhausted(); ++k) {
    const std::vector<DimClass> classes = DimClasses(*s.best().module);
    if (k >= classes.size()) break;
    any |= Shrink(s, {classes[k]}, "dims");
  }
  // Squares must stay squares for some bugs: all that have one size together.
  absl::flat_hash_set<int64_t> seen;
  for (size_t k = 0; !s.exhausted(); ++k) {
    const std::vector<DimClass> classes = DimClasses(*s.best().module);
    if (k >= classes.size()) break;
    if (!seen.insert(classes[k].size).second) continue;
    std::vector<DimClass> equal;
    for (const DimClass& c : classes) {
      if (c.size == classes[k].size) equal.push_back(c);
    }
    if (equal.size() > 1) any |= Shrink(s, equal, "square dims");
  }
  return any;
}

bool ReduceValues(Session& s) {
  bool any = false;
  for (size_t a = 0; a < s.best().arguments.size() && !s.exhausted(); ++a)
    any |= SimplifyLiteral(s, {std::nullopt, a});
  for (size_t c = 0; c < s.best().module->computations().size(); ++c) {
    for (size_t i = 0;
         i < s.best().module->computations()[c]->instructions().size() && !s.exhausted(); ++i) {
      any |= SimplifyLiteral(s, {Position{c, i}, 0});
    }
  }
  return any;
}

bool ReduceAttributes(Session& s) {
  bool any = s.TryEdit("layouts", [](Case& c) {
    for (Computation* computation : c.module->computations()) {
      for (Instruction* op : computation->instructions()) ClearLayouts(&op->mutable_shape());
    }
    c.module->entry_layout.reset();
    return true;
  });
  for (size_t c = 0; c < s.best().module->computations().size(); ++c) {
    for (size_t i = 0;
         i < s.best().module->computations()[c]->instructions().size() && !s.exhausted(); ++i) {
      const Position at{c, i};
      const Instruction* op = At(*s.best().module, at);
      if (op->shape().is_array() && op->shape().has_layout()) {
        any |= s.TryEdit("layout", [&](Case& k) {
          return ClearLayouts(&At(*k.module, at)->mutable_shape()), true;
        });
      }
      any |= SimplifyAttributes(s, at);
    }
  }
  any |= PlainTypes(s);
  return any;
}

}  // namespace tenon::lab
