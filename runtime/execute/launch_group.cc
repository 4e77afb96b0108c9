#include "runtime/execute/launch_group.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "runtime/clock.h"
#include "runtime/program/dim_program.h"
#include "runtime/program/kernel_operands.h"

namespace tenon {
namespace {

constexpr int64_t kLargestMember = 32 * kWorkPerGrain;  // beyond it, a launch of its own costs nothing beside the work
constexpr size_t kMostOperands = 4096;

// Memory that a program names: bytes [begin, end) of a space. An update may lie in its input's memory.
struct Bytes {
  enum class Space { kArena, kOutput, kInput } space;
  int64_t index, begin, end;
  bool Meets(const Bytes& other) const {
    return space == other.space && index == other.index && begin < other.end && other.begin < end;
  }
};

int64_t WorkOf(const KernelStep& kernel) {
  const int64_t size = kernel.end - kernel.begin, grain = std::max<int64_t>(1, kernel.grain);
  if (size / grain > kLargestMember) return kLargestMember + 1;
  return std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(size) / static_cast<double>(grain) * kWorkPerGrain));
}

class Member {
 public:
  Member(const Program& program, const Step& step) : program_(program) {
    const auto* kernel = std::get_if<KernelStep>(&step.body);
    if (kernel == nullptr || kernel->launch || (step.effect != Effect::kPure && step.effect != Effect::kMutates)) return;
    if (!IsStatic(kernel->args) || kernel->grain < 0 || kernel->begin < 0 || kernel->end <= kernel->begin) return;
    work_ = WorkOf(*kernel);
    if (work_ > kLargestMember) return;
    const KernelOperands operands = OperandsOf(program, *kernel);
    fits_ = operands.extras.empty() && absl::c_all_of(operands.reads, [&](const View& v) { return Touch(v, &reads_); }) &&
            absl::c_all_of(operands.results, [&](const View& v) { return Touch(v, &writes_); });
  }

  bool fits() const { return fits_; }
  int64_t work() const { return work_; }
  // One of the two would see what the other writes.
  bool Meets(const Member& other) const {
    return Any(writes_, other.writes_) || Any(writes_, other.reads_) || Any(reads_, other.writes_);
  }

 private:
  static bool Any(const std::vector<Bytes>& a, const std::vector<Bytes>& b) {
    return absl::c_any_of(a, [&](const Bytes& x) { return absl::c_any_of(b, [&](const Bytes& y) { return x.Meets(y); }); });
  }

  // False: nobody knows what else lies there (a framework's tensor), or the order of writes counts (the error word).
  bool Touch(const View& view, std::vector<Bytes>* to) {
    if (view.value < 0) return true;
    const Value& value = program_.values[view.value];
    switch (value.kind) {
      case ValueKind::kConstant:
        return to == &reads_;
      case ValueKind::kArena:
        if (value.is_placed_per_call() || value.offset < 0 || value.bytes < 0) return false;
        to->push_back({Bytes::Space::kArena, 0, value.offset, value.offset + value.bytes});
        return true;
      case ValueKind::kOutput:
        to->push_back({Bytes::Space::kOutput, value.index, 0, 1});
        return true;
      case ValueKind::kInput:
      case ValueKind::kUpdate:
        to->push_back({Bytes::Space::kInput, value.index, 0, 1});
        return true;
      case ValueKind::kSlot:
      case ValueKind::kErrorWord:
        return false;
    }
    return false;
  }

  const Program& program_;
  bool fits_ = false;
  int64_t work_ = 0;
  std::vector<Bytes> reads_, writes_;
};

}  // namespace

std::vector<LaunchGroup> FindLaunchGroups(const Program& program, const Region& region) {
  std::vector<LaunchGroup> groups;
  std::vector<Member> members;
  LaunchGroup open;
  size_t operands = 0;
  auto close = [&] {
    if (open.count >= 2 && open.work() >= 2 * kWorkPerGrain) groups.push_back(std::move(open));
    open = LaunchGroup();
    members.clear();
    operands = 0;
  };
  for (size_t i = 0; i < region.steps.size(); ++i) {
    const Step& step = region.steps[i];
    Member next(program, step);
    if (!next.fits()) {
      close();
      continue;
    }
    const size_t more = std::get<KernelStep>(step.body).operands.size();
    // Before the first step that updates an input the run looks at what may have failed: it begins a group.
    const bool apart = open.count > 0 && (region.steps[open.first].effect != step.effect || operands + more > kMostOperands ||
                                          absl::c_any_of(members, [&](const Member& m) { return m.Meets(next); }));
    if (apart) close();
    if (open.count++ == 0) open.first = static_cast<int32_t>(i);
    open.work_ends.push_back((members.empty() ? 0 : open.work()) + next.work());
    operands += more;
    members.push_back(std::move(next));
  }
  close();
  return groups;
}

void RunPiece(const LaunchGroup& group, const GroupedKernel* kernels, int64_t piece, int64_t pieces, char* scratch, PieceTime* times) {
  const int64_t from = group.work() * piece / pieces, to = group.work() * (piece + 1) / pieces;
  const auto& ends = group.work_ends;
  for (size_t k = std::upper_bound(ends.begin(), ends.end(), from) - ends.begin(); k < ends.size(); ++k) {
    const int64_t start = k == 0 ? 0 : ends[k - 1], work = ends[k] - start;
    if (start >= to) return;
    const GroupedKernel& kernel = kernels[k];
    const double size = static_cast<double>(kernel.end - kernel.begin);
    auto place = [&](int64_t at) {
      if (at <= start) return kernel.begin;
      if (at >= ends[k]) return kernel.end;
      return kernel.begin + static_cast<int64_t>(size * static_cast<double>(at - start) / static_cast<double>(work));
    };
    const int64_t begin = place(from), end = place(to);
    if (begin >= end) continue;
    const uint64_t began = times == nullptr ? 0 : Ticks();
    kernel.function(kernel.pointers, kernel.args, begin, end, scratch);
    if (times != nullptr) times[static_cast<int64_t>(k) + piece] = {ThreadNumber(), static_cast<int32_t>(k), began, Ticks()};
  }
}

}  // namespace tenon
