#include "backends/codegen/kernel/segments.h"

#include <optional>

#include "absl/algorithm/container.h"

namespace tenon {
namespace {

std::optional<Segments> SegmentsOf(const FusedKernel& f, const std::vector<PlanLoop>& loops, const Instruction& concat) {
  if (concat.shape().rank() != static_cast<int64_t>(f.dims.size())) return std::nullopt;
  const int64_t d = concat.dimensions()[0];
  if (!KnownEqual(concat.shape().dim(d), f.dims[static_cast<size_t>(d)])) return std::nullopt;
  for (size_t i = 0; i < loops.size(); ++i) {
    if (loops[i].dims[0] != d) continue;
    Dim inner = 1;
    for (size_t k = 1; k < loops[i].dims.size(); ++k) inner *= f.dims[static_cast<size_t>(loops[i].dims[k])];
    Segments s{.loop = i};
    Dim start = 0;
    for (const Instruction* o : concat.operands()) {
      s.starts.push_back(start * inner);
      s.extents.push_back(o->shape().dim(d) * inner);
      start += o->shape().dim(d);
    }
    return s;
  }
  return std::nullopt;
}

}  // namespace

std::vector<Segments> FindSegments(const FusedKernel& f, const std::vector<PlanLoop>& loops, size_t most) {
  std::vector<Segments> found;
  for (const bool full : {true, false}) {
    for (const Instruction* op : f.order) {
      if (op->opcode() != Opcode::kConcatenate || (f.RoleOf(op->shape()) == Role::kFull) != full) continue;
      const std::optional<Segments> s = SegmentsOf(f, loops, *op);
      if (!s || s->starts.size() > most || absl::c_any_of(found, [&](const Segments& other) { return other.loop == s->loop; })) continue;
      found.push_back(*s);
      most /= s->starts.size();
    }
  }
  return found;
}

}  // namespace tenon
