#include "runtime/execute/launch_group.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "runtime/clock.h"
#include "runtime/program/dim_program.h"
#include "runtime/program/kernel_operands.h"

namespace tenon {
namespace {

constexpr size_t kMostOperands = 4096, kMostMayMeet = 64;

// Memory that a program names: bytes [begin, end) of a space. An update may lie in its input's memory. Values that each call places lie
// behind all others of the arena, and apart from those that live together with them.
struct Bytes {
  enum class Space { kArena, kPlaced, kOutput, kInput } space;
  int64_t index, begin, end;
  BufferLife life = {-1, -1};
  bool Meets(const Bytes& other) const {
    return space == other.space && index == other.index && begin < other.end && other.begin < end;
  }
  // In some calls.
  bool MayMeet(const Bytes& other) const {
    return space == Space::kPlaced && other.space == Space::kPlaced && index != other.index && !life.Meets(other.life);
  }
};

class Member {
 public:
  Member(const Program& program, const Step& step) : program_(program) {
    const auto* kernel = std::get_if<KernelStep>(&step.body);
    if (kernel == nullptr || kernel->launch || (step.effect != Effect::kPure && step.effect != Effect::kMutates)) return;
    if (kernel->grain >= 0 && kernel->begin >= 0 && kernel->end >= 0) {
      work_ = WorkOf(kernel->end - kernel->begin, kernel->grain);
      if (work_ == 0 || work_ > kLargestMember) return;
    }
    const KernelOperands operands = OperandsOf(program, *kernel);
    fits_ = operands.extras.empty() && absl::c_all_of(operands.reads, [&](const View& v) { return Touch(v, &reads_); }) &&
            absl::c_all_of(operands.results, [&](const View& v) { return Touch(v, &writes_); });
  }

  bool fits() const { return fits_; }
  int64_t work() const { return work_; }
  // One of the two would see what the other writes.
  bool Meets(const Member& other) const {
    return AnyPair(other, [](const Bytes& x, const Bytes& y) { return x.Meets(y); });
  }
  // What in some calls makes it so: values of this and of `other`.
  void AddMayMeet(const Member& other, int32_t number, int32_t others, std::vector<LaunchGroup::MayMeet>* to) const {
    AnyPair(other, [&](const Bytes& x, const Bytes& y) {
      if (x.MayMeet(y)) to->push_back({number, others, static_cast<int32_t>(x.index), static_cast<int32_t>(y.index)});
      return false;
    });
  }

  // What is left of `room`, at its longest, where this kernel runs beside others.
  FreeMemory LeftOf(FreeMemory room) const {
    for (const std::vector<Bytes>* all : {&reads_, &writes_}) {
      for (const Bytes& b : *all) {
        const bool there = room.output < 0 ? b.space == Bytes::Space::kArena : b.space == Bytes::Space::kOutput && b.index == room.output;
        if (!there || b.begin >= room.offset + room.bytes || b.end <= room.offset) continue;
        const int64_t before = std::max<int64_t>(0, b.begin - room.offset) / kArenaAlignment * kArenaAlignment;
        const int64_t end = room.offset + room.bytes;
        const int64_t behind = b.end >= end ? end : AlignedUp(b.end);
        if (before >= end - behind) room.bytes = before;
        else room = {room.output, behind, end - behind};
      }
    }
    return room;
  }

 private:
  // Of places of which one is written.
  template <typename Holds>
  bool AnyPair(const Member& other, Holds holds) const {
    const auto any = [&](const std::vector<Bytes>& a, const std::vector<Bytes>& b) {
      return absl::c_any_of(a, [&](const Bytes& x) { return absl::c_any_of(b, [&](const Bytes& y) { return holds(x, y); }); });
    };
    return any(writes_, other.writes_) || any(writes_, other.reads_) || any(reads_, other.writes_);
  }

  // False: nobody knows what else lies there (a framework's tensor), or the order of writes counts (the error word).
  bool Touch(const View& view, std::vector<Bytes>* to) {
    if (view.value < 0) return true;
    const Value& value = program_.values[view.value];
    switch (value.kind) {
      case ValueKind::kConstant:
        return to == &reads_;
      case ValueKind::kArena:
        if (value.is_placed_per_call()) {
          to->push_back({Bytes::Space::kPlaced, view.value, 0, 1, value.life});
          return true;
        }
        if (value.offset < 0 || value.bytes < 0) return false;
        to->push_back({Bytes::Space::kArena, 0, value.offset, value.offset + value.bytes});
        return true;
      case ValueKind::kOutput:
        to->push_back({Bytes::Space::kOutput, value.index, 0, INT64_MAX});
        if (value.has_life()) to->push_back({Bytes::Space::kPlaced, view.value, 0, 1, value.life});
        return true;
      case ValueKind::kLent:
        to->push_back({Bytes::Space::kOutput, value.index, value.offset, value.offset + value.bytes});
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
  int64_t work_ = LaunchGroup::kOfSizes;
  std::vector<Bytes> reads_, writes_;
};

}  // namespace

int64_t WorkOf(int64_t size, int64_t grain) {
  if (size <= 0) return 0;
  const double work = static_cast<double>(size) / static_cast<double>(std::max<int64_t>(1, grain)) * kWorkPerGrain;
  return static_cast<int64_t>(std::clamp<double>(work, 1, kLargestMember + 1));
}

namespace {

// What one of them has room in and none of them touches: whatever is alive at another's place in the order and not at its own is born or
// dies on the way, so that one of them writes or reads it.
FreeMemory RoomOf(absl::Span<const Member> members, absl::Span<const Step> steps) {
  FreeMemory longest;
  for (const Step& step : steps) {
    FreeMemory room = std::get<KernelStep>(step.body).room;
    for (const Member& m : members) room = m.LeftOf(room);
    if (room.bytes > longest.bytes) longest = room;
  }
  return longest;
}

}  // namespace

std::vector<LaunchGroup> FindLaunchGroups(const Program& program, const Region& region) {
  std::vector<LaunchGroup> groups;
  std::vector<Member> members;
  LaunchGroup open;
  size_t operands = 0;
  const bool places = absl::c_any_of(program.values, [](const Value& v) { return v.is_placed_per_call(); });
  auto close = [&] {
    const bool known = !absl::c_linear_search(open.work, LaunchGroup::kOfSizes);
    if (open.count >= 2 && (!known || absl::c_accumulate(open.work, int64_t{0}) >= 2 * kWorkPerGrain)) {
      open.room = RoomOf(members, absl::MakeConstSpan(region.steps).subspan(static_cast<size_t>(open.first), members.size()));
      groups.push_back(std::move(open));
    }
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
    std::vector<LaunchGroup::MayMeet> may_meet;
    for (size_t m = 0; places && m < members.size(); ++m) {
      members[m].AddMayMeet(next, static_cast<int32_t>(m), static_cast<int32_t>(members.size()), &may_meet);
    }
    // Before the first step that updates an input the run looks at what may have failed: it begins a group.
    const bool apart = open.count > 0 && (region.steps[open.first].effect != step.effect || operands + more > kMostOperands ||
                                          open.may_meet.size() + may_meet.size() > kMostMayMeet ||
                                          absl::c_any_of(members, [&](const Member& m) { return m.Meets(next); }));
    if (apart) close();
    else open.may_meet.insert(open.may_meet.end(), may_meet.begin(), may_meet.end());
    if (open.count++ == 0) open.first = static_cast<int32_t>(i);
    open.work.push_back(next.work());
    operands += more;
    members.push_back(std::move(next));
  }
  close();
  return groups;
}

void RunPiece(absl::Span<const GroupedKernel> kernels, absl::Span<const int64_t> ends, int64_t piece, int64_t pieces, char* scratch,
              PieceTime* times) {
  const int64_t from = ends.back() * piece / pieces, to = ends.back() * (piece + 1) / pieces;
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
