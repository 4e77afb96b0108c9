// Who runs next, barriers, and what is said when nobody can run.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tools/lab/gpu/machine.h"

namespace tenon::gpu {
namespace {

std::string Where(const EmulatedModule::Image& image, uint32_t site) {
  return absl::StrCat("`", image.sites[site].instruction, "` in ", image.sites[site].function);
}

}  // namespace

// `threads` is permuted, where the launch permutes.
void Machine::Enqueue(absl::Span<uint32_t> threads) {
  order_.Shuffle(std::span<uint32_t>(threads.data(), threads.size()));
  const bool in_front = order_.permutes() && order_.Below(2) == 0;
  const size_t n = ready_.size();
  if (in_front) ready_head_ = (ready_head_ + n - threads.size()) % n;
  for (size_t k = 0; k < threads.size(); ++k) {
    threads_[threads[k]].state = Thread::State::kReady;
    ready_[(ready_head_ + (in_front ? 0 : ready_count_) + k) % n] = threads[k];
  }
  ready_count_ += threads.size();
}

void Machine::SwitchToNext() {
  Thread& self = *current_;
  if (ready_count_ == 0) {
    SwitchContext(self.context, home_);
    return;
  }
  current_ = &threads_[ready_[ready_head_]];
  ready_head_ = ready_head_ + 1 == ready_.size() ? 0 : ready_head_ + 1;
  --ready_count_;
  if (current_ == &self) return;
  ++counts_->fibre_switches;
  SwitchContext(self.context, current_->context);
}

uint32_t Machine::Barrier(uint32_t id, uint32_t count, BarrierKind kind, uint32_t predicate, bool aligned, uint32_t site) {
  const auto bad = [&](std::string what) {
    what.insert(0, "bad barrier: ");
    Fail(absl::StatusCode::kFailedPrecondition, std::move(what), site);
  };
  if (id >= barriers_.size()) bad(absl::StrCat("barrier ", id, "; there are 16"));
  if (count == 0) count = threads();
  if (count > threads() || (count % 32 != 0 && count != threads())) {
    bad(absl::StrCat("barrier of ", count, " threads in a block of ", threads(), ": whole warps, and no more than the block has"));
  }
  NamedBarrier& b = barriers_[id];
  if (b.count != 0 && (b.count != count || b.kind != kind)) {
    bad(absl::StrCat("threads wait at barrier ", id, " for ", b.count,
                     " threads, or for another kind of barrier, when this one comes to wait for ", count));
  }
  b.count = count;
  b.kind = kind;
  Thread& t = *current_;
  t.state = Thread::State::kAtBarrier;
  t.site = site;
  t.barrier = id;
  t.predicate = predicate;
  b.waiting.push_back(t.index);
  if (b.waiting.size() == count) ReleaseBarrier(b, aligned, site);
  SwitchToNext();
  return t.predicate;
}

void Machine::ReleaseBarrier(NamedBarrier& b, bool aligned, uint32_t site) {
  if (aligned) {
    std::vector<const Thread*> first(warps_.size());
    for (uint32_t i : b.waiting) {
      const Thread& t = threads_[i];
      if (first[t.warp] == nullptr) first[t.warp] = &t;
      if (first[t.warp]->site == t.site) continue;
      std::string what = absl::StrCat("divergent barrier: threads of warp ", t.warp, " are at two aligned barriers: at ",
                                      Where(*image_, first[t.warp]->site), " and at ", Where(*image_, t.site));
      std::vector<const Thread*>().swap(first);
      Fail(absl::StatusCode::kFailedPrecondition, std::move(what), site);
    }
  }
  uint32_t ones = 0;
  for (uint32_t i : b.waiting) ones += threads_[i].predicate != 0 ? 1 : 0;
  const uint32_t result = b.kind == BarrierKind::kPopcount ? ones : b.kind == BarrierKind::kAnd ? ones == b.count : ones != 0;
  for (uint32_t i : b.waiting) threads_[i].predicate = result;
  std::sort(b.waiting.begin(), b.waiting.end());
  Synchronize(b.waiting);
  Enqueue(absl::MakeSpan(b.waiting));
  b.waiting.clear();
  b.count = 0;
}

// All that these threads (ascending) did is ordered before all that they do from now on.
void Machine::Synchronize(absl::Span<const uint32_t> threads) {
  ++now_;
  if (!options_->races) return;
  if (threads.size() == threads_.size()) {
    last_barrier_ = now_;
    return;
  }
  const uint32_t warp = threads.front() / 32;
  const bool one_warp = threads.back() / 32 == warp;
  if (one_warp && !clocks_used_ && threads.size() == static_cast<size_t>(__builtin_popcount(warps_[warp].lanes))) {
    warps_[warp].time = now_;
    return;
  }
  if (!clocks_used_) clocks_.assign(threads_.size() * clock_width_, 0);
  clocks_used_ = true;
  if (!one_warp && clock_width_ == 32 && threads_.size() > 32) WidenClocks();
  const uint32_t first = clock_width_ == 32 ? warp * 32 : 0;
  std::vector<uint64_t> joined(clock_width_, 0);
  for (uint32_t i : threads) {
    const uint64_t* row = &clocks_[size_t{i} * clock_width_];
    for (uint32_t u = 0; u < clock_width_; ++u) {
      joined[u] = std::max(joined[u], row[u]);
      if ((first + u) / 32 == i / 32) joined[u] = std::max(joined[u], warps_[i / 32].time);
    }
  }
  for (uint32_t i : threads) joined[i - first] = now_;
  for (uint32_t i : threads) std::copy(joined.begin(), joined.end(), clocks_.begin() + size_t{i} * clock_width_);
}

// From a clock of each lane of the thread's warp to one of each thread of the block.
void Machine::WidenClocks() {
  const auto n = static_cast<uint32_t>(threads_.size());
  std::vector<uint64_t> wide(size_t{n} * n, 0);
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t first = i / 32 * 32;
    std::copy_n(clocks_.begin() + size_t{i} * 32, std::min(32u, n - first), wide.begin() + size_t{i} * n + first);
  }
  clocks_ = std::move(wide);
  clock_width_ = n;
}

std::string Machine::DescribeThreads(absl::Span<const uint32_t> threads) const {
  std::vector<std::string> names;
  for (uint32_t i : threads) {
    if (names.size() == 4) {
      names.push_back(absl::StrCat("and ", threads.size() - 4, " more"));
      break;
    }
    const auto& id = threads_[i].id;
    names.push_back(absl::StrFormat("(%d,%d,%d)", id[0], id[1], id[2]));
  }
  return absl::StrJoin(names, " ");
}

// Every thread has exited or waits, and some wait.
absl::Status Machine::Stuck() const {
  std::vector<uint32_t> exited, at_barrier, at_op;
  for (const Thread& t : threads_) {
    (t.state == Thread::State::kExited ? exited : t.state == Thread::State::kAtBarrier ? at_barrier : at_op).push_back(t.index);
  }
  const auto fail = [&](std::string what) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s; kernel %s, block (%d,%d,%d)", what, kernel_->name, block_[0], block_[1], block_[2]));
  };
  for (uint32_t i : at_op) {
    const Thread& t = threads_[i];
    const Warp& w = warps_[t.warp];
    if ((t.mask & w.exited) != 0) {
      return fail(absl::StrFormat("bad mask: %s of lane %d waits with mask 0x%08x for lanes 0x%08x, which have exited; at %s",
                                  WarpOpName(t.op), t.lane, t.mask, t.mask & w.exited, Where(*image_, t.site)));
    }
    for (const Thread& other : threads_) {
      if (other.warp != t.warp || (t.mask >> other.lane & 1) == 0) continue;
      if (other.state == Thread::State::kAtWarpOp && other.site == t.site && other.mask == t.mask) continue;
      return fail(absl::StrFormat("divergent warp: %s of lane %d waits with mask 0x%08x at %s for lane %d, which waits at %s",
                                  WarpOpName(t.op), t.lane, t.mask, Where(*image_, t.site), other.lane, Where(*image_, other.site)));
    }
  }
  std::string what = "divergent barrier: ";
  for (size_t k = 0; k < at_barrier.size(); ++k) {
    std::vector<uint32_t> together;
    bool first = true;
    for (size_t j = 0; j < at_barrier.size(); ++j) {
      if (threads_[at_barrier[j]].site != threads_[at_barrier[k]].site) continue;
      first &= j >= k;
      together.push_back(at_barrier[j]);
    }
    if (!first) continue;
    absl::StrAppend(&what, k == 0 ? "" : ", ", "threads ", DescribeThreads(together), " wait at ",
                    Where(*image_, threads_[at_barrier[k]].site));
  }
  if (!exited.empty()) absl::StrAppend(&what, ", threads ", DescribeThreads(exited), " have exited");
  return fail(what);
}

}  // namespace tenon::gpu
