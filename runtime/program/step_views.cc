#include "runtime/program/step_views.h"

namespace tenon {

void ForEachView(const Step& step, const std::function<void(const View&)>& fn) {
  if (const auto* k = std::get_if<KernelStep>(&step.body)) {
    for (const View& v : k->operands) fn(v);
  } else if (const auto* f = std::get_if<FrameworkStep>(&step.body)) {
    for (const View& v : f->operands) fn(v);
    for (const View& v : f->results) fn(v);
  } else if (const auto* l = std::get_if<LibraryStep>(&step.body)) {
    for (const View& v : l->operands) fn(v);
    for (const View& v : l->results) fn(v);
  } else if (const auto* c = std::get_if<CopyStep>(&step.body)) {
    fn(c->from);
    fn(c->to);
  } else if (const auto* w = std::get_if<WhileStep>(&step.body)) {
    fn(w->predicate);
  } else if (const auto* b = std::get_if<ConditionalStep>(&step.body)) {
    fn(b->index);
  }
}

std::vector<int32_t> RegionsOf(const Step& step) {
  if (const auto* w = std::get_if<WhileStep>(&step.body)) return {w->condition, w->body};
  if (const auto* b = std::get_if<ConditionalStep>(&step.body)) return b->branches;
  return {};
}

void ForEachViewInside(const Program& program, const Step& step, const std::function<void(const View&)>& fn) {
  ForEachView(step, fn);
  for (int32_t r : RegionsOf(step)) {
    for (const Step& inner : program.regions[r].steps) ForEachViewInside(program, inner, fn);
  }
}

}  // namespace tenon
