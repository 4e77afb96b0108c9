#include "tools/lab/generate/random_plan.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace tenon::lab {
namespace {

template <typename T>
T& Of(Random& r, std::vector<T>& v) {
  return v[static_cast<size_t>(r.Below(static_cast<int64_t>(v.size())))];
}

void ChangeLoops(Random& r, KernelPlan& p) {
  if (p.loops.empty()) return;
  switch (r.Between(0, 4)) {
    case 0: return std::swap(Of(r, p.loops), Of(r, p.loops));
    case 1: p.loops.erase(p.loops.begin() + r.Between(0, static_cast<int64_t>(p.loops.size()) - 1)); return;
    case 2: Of(r, p.loops).reduced ^= true; return;
    case 3: {  // two loops as one
      if (p.loops.size() < 2) return;
      const size_t i = static_cast<size_t>(r.Between(0, static_cast<int64_t>(p.loops.size()) - 2));
      p.loops[i].dims.insert(p.loops[i].dims.end(), p.loops[i + 1].dims.begin(), p.loops[i + 1].dims.end());
      p.loops[i].extent *= p.loops[i + 1].extent;
      p.loops.erase(p.loops.begin() + static_cast<int64_t>(i) + 1);
      return;
    }
    default: {
      PlanLoop& loop = Of(r, p.loops);
      if (!loop.dims.empty()) std::swap(Of(r, loop.dims), Of(r, loop.dims));
    }
  }
}

void ChangePhases(Random& r, KernelPlan& p) {
  if (p.phases.empty()) return;
  PlanPhase &from = Of(r, p.phases), &to = Of(r, p.phases);
  auto move = [&](std::vector<int64_t>& a, std::vector<int64_t>& b) {
    if (a.empty()) return;
    const int64_t x = Of(r, a);
    if (!r.OneIn(6)) a.erase(std::find(a.begin(), a.end(), x));
    b.push_back(x);
  };
  switch (r.Between(0, 6)) {
    case 0: return move(from.reduces, to.reduces);
    case 1: return move(from.roots, to.roots);
    case 2: return move(from.kept, to.kept);
    case 3: to.kept.push_back(r.Between(0, 12)); return;
    case 4: return std::swap(from, to);
    case 5: return to.lent.push_back({r.Between(0, 12), r.OneIn(4) ? 1 : 0});
    default: p.phases.emplace_back();
  }
}

}  // namespace

KernelPlan ChangedPlan(Random& r, KernelPlan p) {
  const int64_t loops = static_cast<int64_t>(p.loops.size());
  for (int64_t n = r.Between(1, 3); n > 0; --n) {
    switch (r.Between(0, 11)) {
      case 0: p.lanes = 1 << r.Between(0, 6); break;
      case 1: p.unroll = static_cast<int>(r.Between(1, 14)); break;
      case 2: p.split = static_cast<int>(r.Between(0, loops)); break;
      case 3: p.block = r.OneIn(3) ? 0 : p.lanes * r.Between(1, 5) + (r.OneIn(4) ? 1 : 0); break;
      case 4: p.tile_loop = static_cast<int>(r.Between(-1, loops)); break;
      case 5: p.rows = r.OneIn(2) ? 0 : p.unroll * r.Between(1, 3); break;
      case 6: p.packed ^= true; break;
      case 7: p.masked_tail ^= true; break;
      case 8: p.scratch_bytes = r.OneIn(2) ? 0 : std::max<int64_t>(0, p.scratch_bytes + 64 * r.Between(-3, 40)); break;
      case 9: p.kind = static_cast<PlanKind>(r.Between(0, 8)); break;
      case 10: ChangeLoops(r, p); break;
      default: ChangePhases(r, p);
    }
  }
  return p;
}

absl::StatusOr<std::string> WithOneChanged(std::string_view plans, Random& random, DimTable* dims) {
  std::vector<std::string> lines = absl::StrSplit(std::string(plans), '\n');
  std::vector<size_t> of_kernels;  // beside those that say whose they are
  for (size_t i = 0; i < lines.size(); ++i) {
    if (!lines[i].empty() && lines[i][0] == ' ') of_kernels.push_back(i);
  }
  if (of_kernels.empty()) return std::string(plans);
  std::string& line = lines[Of(random, of_kernels)];
  TENON_ASSIGN_OR_RETURN(KernelPlan plan, ParseKernelPlan(line, dims));
  line = "  " + ToString(ChangedPlan(random, std::move(plan)));
  return absl::StrJoin(lines, "\n");
}

}  // namespace tenon::lab
