// Every access to memory of the running kernel comes by here before it is done.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/lab/gpu/machine.h"

namespace tenon::gpu {
namespace {

constexpr auto kOutside = absl::StatusCode::kOutOfRange;
constexpr auto kWrong = absl::StatusCode::kFailedPrecondition;

}  // namespace

void Machine::Access(uintptr_t address, size_t size, uint32_t site) {
  const Site& s = image_->sites[site];
  if (size == 0) return;
  ++(s.atomic ? counts_->atomics : s.write ? counts_->stores : counts_->loads);
  if (memory_->Owns(reinterpret_cast<const void*>(address))) {
    AccessGlobal(address, size, s, site);
  } else if (InShared(address)) {
    AccessShared(address, size, s, site);
  } else {
    AccessElsewhere(address, size, s, site);
  }
  // After the bounds: who is outside and misaligned is told of the greater evil.
  if (address % s.align != 0)
    FailAccess(kWrong, "misaligned", address, size, s, site, absl::StrCat("; it says that it is aligned to ", s.align));
}

void Machine::AccessGlobal(uintptr_t address, size_t size, const Site& s, uint32_t site) {
  if (s.space != Space::kGeneric && s.space != Space::kGlobal) FailAccess(kWrong, "wrong space", address, size, s, site, ": global memory");
  EmulatedMemory::Allocation& a = last_[site];
  if (address - a.begin >= a.size || size > a.size - (address - a.begin)) {
    const EmulatedMemory::Allocation* found = memory_->Find(address);
    const bool begins_inside = found != nullptr && address - found->begin < found->size;
    if (begins_inside && found->freed) FailAccess(kOutside, "use after free", address, size, s, site);
    if (!begins_inside || size > found->size - (address - found->begin)) FailAccess(kOutside, "out of bounds", address, size, s, site);
    a = *found;
  }
  counts_->global_bytes += static_cast<int64_t>(size);
  const size_t offset = memory_->Offset(reinterpret_cast<const void*>(address));
  CheckWritten(memory_->shadow(), offset, size, s, site, false);
  CheckRace(memory_->shadow(), offset, size, s, site, false);
  if (options_->count_memory) {
    auto& by_thread = recorded_[site];
    if (by_thread.empty()) by_thread.resize(threads_.size());
    by_thread[current_->index].push_back({address, static_cast<uint32_t>(size)});
  }
}

void Machine::AccessShared(uintptr_t address, size_t size, const Site& s, uint32_t site) {
  if (s.space != Space::kGeneric && s.space != Space::kShared) FailAccess(kWrong, "wrong space", address, size, s, site, ": shared memory");
  const size_t offset = address - shared_base_;
  const bool inside = std::any_of(shared_.begin(), shared_.end(), [&](const SharedGlobal& g) {
    return offset >= g.offset && offset - g.offset < g.size && size <= g.size - (offset - g.offset);
  });
  if (!inside) FailAccess(kOutside, "out of bounds", address, size, s, site);
  counts_->shared_bytes += static_cast<int64_t>(size);
  const Shadow& shadow = image_->shared->shadow();
  CheckWritten(shadow, offset, size, s, site, true);
  CheckRace(shadow, offset, size, s, site, true);
  if (options_->count_memory) {
    auto& by_thread = recorded_[site];
    if (by_thread.empty()) by_thread.resize(threads_.size());
    by_thread[current_->index].push_back({address, static_cast<uint32_t>(size)});
  }
}

// A table of constants, an alloca of this thread, or nowhere.
void Machine::AccessElsewhere(uintptr_t address, size_t size, const Site& s, uint32_t site) {
  for (const auto& [begin, bytes] : current_->locals) {
    if (address - begin >= bytes || size > bytes - (address - begin)) continue;
    if (s.space != Space::kGeneric && s.space != Space::kLocal) FailAccess(kWrong, "wrong space", address, size, s, site, ": local memory");
    counts_->local_bytes += static_cast<int64_t>(size);
    return;
  }
  const auto& constants = image_->constants;
  auto c = std::upper_bound(constants.begin(), constants.end(), address, [](uintptr_t a, const ConstantRange& r) { return a < r.begin; });
  const bool inside = c != constants.begin() && address - (--c)->begin < c->size && size <= c->size - (address - c->begin);
  if (!inside) FailAccess(kOutside, "out of bounds", address, size, s, site);
  if (s.write) FailAccess(kWrong, "wrong space", address, size, s, site, ": constant memory");
  if (s.space == Space::kShared || s.space == Space::kLocal) FailAccess(kWrong, "wrong space", address, size, s, site, ": constant memory");
  counts_->constant_bytes += static_cast<int64_t>(size);
}

void Machine::CheckWritten(const Shadow& shadow, size_t offset, size_t size, const Site& s, uint32_t site, bool shared) {
  if (s.read && options_->uninitialised) {
    const size_t bad = FirstUnwritten(shadow, offset, size);
    if (bad < offset + size) {
      const uintptr_t base = shared ? shared_base_ : memory_->base();
      FailAccess(kWrong, "uninitialised", base + bad, size, s, site,
                 shared ? ": no thread of this block has written it" : ": nobody has written it");
    }
  }
  if (s.write) std::fill_n(shadow.written + offset, size, uint8_t{1});
}

void Machine::CheckRace(const Shadow& shadow, size_t offset, size_t size, const Site& s, uint32_t site, bool shared) {
  if (!options_->races) return;
  const Thread& t = *current_;
  Order order;
  order.since = shared ? block_start_ : launch_start_;
  order.block_start = block_start_;
  order.barrier = last_barrier_;
  order.warp = warps_[t.warp].time;
  order.thread = t.index;
  if (clocks_used_) {
    order.clocks = &clocks_[size_t{t.index} * clock_width_];
    order.first = clock_width_ == 32 ? t.warp * 32 : 0;
    order.width = clock_width_;
  }
  const Conflict c = Touch(shadow, offset, size, stamp::Make(now_, t.index, site, s.atomic), s.write, order);
  if (c.with == 0) return;
  const uintptr_t base = shared ? shared_base_ : memory_->base();
  std::string more = absl::StrCat(": not ordered with the ", c.with_write ? "write" : "read", " by ", DescribeAccess(c.with));
  FailAccess(absl::StatusCode::kAborted, "race", base + c.offset, size, s, site, std::move(more));
}

std::string Machine::DescribeAccess(uint64_t s) const {
  const uint32_t index = stamp::Thread(s);
  const auto& id = threads_[index].id;
  std::string who = absl::StrFormat("thread (%d,%d,%d)", id[0], id[1], id[2]);
  if (stamp::Time(s) < block_start_) {
    const auto after = std::upper_bound(block_starts_.begin(), block_starts_.end(), stamp::Time(s),
                                        [](uint64_t time, const auto& start) { return time < start.first; });
    const auto& b = std::prev(after)->second;
    absl::StrAppend(&who, absl::StrFormat(" of block (%d,%d,%d)", b[0], b[1], b[2]));
  }
  const uint32_t site = stamp::Site(s);
  if (site == stamp::kSites) return who + " elsewhere";
  return absl::StrCat(who, " at `", image_->sites[site].instruction, "` in ", image_->sites[site].function);
}

std::string Machine::DescribeAddress(uintptr_t address) const {
  if (InShared(address)) {
    return image_->shared->Describe(address - shared_base_, static_cast<size_t>(config_->dynamic_shared_bytes));
  }
  for (const auto& [begin, size] : current_->locals) {
    if (address + 64 >= begin && address < begin + size + 64) {
      return absl::StrCat("at offset ", static_cast<int64_t>(address - begin), " of a local array of ", size, " bytes");
    }
  }
  for (const ConstantRange& c : image_->constants) {
    if (address + 64 >= c.begin && address < c.begin + c.size + 64) {
      return absl::StrCat("at offset ", static_cast<int64_t>(address - c.begin), " of the constant @", c.name, " of ", c.size, " bytes");
    }
  }
  return memory_->Describe(address);
}

void Machine::FailAccess(absl::StatusCode code, const char* what, uintptr_t address, size_t size, const Site& s, uint32_t site,
                         std::string more) {
  const char* verb = s.atomic ? "atomic" : s.write ? "write" : "read";
  std::string message =
      absl::StrCat(what, ": ", verb, " of ", size, " bytes at 0x", absl::Hex(address), ", ", DescribeAddress(address), more);
  std::string().swap(more);
  Fail(code, std::move(message), site);
}

}  // namespace tenon::gpu
