#include "tools/lab/gpu/machine.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "hlo/check.h"

namespace tenon::gpu {
namespace {

std::string Triple(const std::array<uint32_t, 3>& v) { return absl::StrFormat("(%d,%d,%d)", v[0], v[1], v[2]); }

absl::Status CheckConfig(const Kernel& kernel, const LaunchConfig& config) {
  const auto wrong = [&](std::string what) { return absl::InvalidArgumentError(absl::StrCat("launch of ", kernel.name, ": ", what)); };
  constexpr std::array<int64_t, 3> kGrid = {0x7fffffff, 0xffff, 0xffff}, kBlock = {1024, 1024, 64};
  int64_t threads = 1;
  for (int d = 0; d < 3; ++d) {
    if (config.grid[d] < 1 || config.grid[d] > kGrid[d]) return wrong(absl::StrCat("a grid of ", config.grid[d], " blocks in dim ", d));
    if (config.block[d] < 1 || config.block[d] > kBlock[d]) return wrong(absl::StrCat("a block of ", config.block[d], " in dim ", d));
    threads *= config.block[d];
  }
  if (threads > kernel.max_threads) {
    return wrong(absl::StrCat("a block of ", threads, " threads; the kernel is for at most ", kernel.max_threads));
  }
  if (kernel.required_threads != 0 && threads != kernel.required_threads) {
    return wrong(absl::StrCat("a block of ", threads, " threads; the kernel is for ", kernel.required_threads));
  }
  if (config.dynamic_shared_bytes < 0) return wrong("less than no shared memory");
  return absl::OkStatus();
}

absl::Status CheckParams(const Kernel& kernel, void* const* params) {
  for (size_t i = 0; i < kernel.param_aligns.size(); ++i) {
    if (params[i] == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("launch of ", kernel.name, ": no value of parameter ", i));
    }
    if (!kernel.param_is_pointer[i]) continue;
    uint64_t value;
    std::memcpy(&value, params[i], sizeof value);
    if (value % kernel.param_aligns[i] != 0) {
      return absl::InvalidArgumentError(absl::StrCat("launch of ", kernel.name, ": parameter ", i, " is 0x", absl::Hex(value),
                                                     "; the kernel says that it is aligned to ", kernel.param_aligns[i]));
    }
  }
  return absl::OkStatus();
}

}  // namespace

Machine& TheMachine() {
  static auto* machine = new Machine;
  return *machine;
}

absl::Status Machine::Run(const EmulatedModule::Image& image, const Kernel& kernel, const LaunchConfig& config, void* const* params,
                          const EmulatorOptions& options, LaunchCounts* counts) {
  image_ = &image;
  kernel_ = &kernel;
  config_ = &config;
  options_ = &options;
  counts_ = counts;
  params_ = params;
  memory_ = &TheEmulatedMemory();
  TENON_RETURN_IF_ERROR(Prepare(params));
  const absl::Status status = RunBlocks();
  // Nothing of the caller's stays behind.
  recorded_.clear();
  image_ = nullptr;
  kernel_ = nullptr;
  return status;
}

absl::Status Machine::Prepare(void* const* params) {
  TENON_RETURN_IF_ERROR(CheckConfig(*kernel_, *config_));
  TENON_RETURN_IF_ERROR(CheckParams(*kernel_, params));
  shared_.clear();
  int64_t bytes = 0;
  for (size_t g : kernel_->shared) {
    shared_.push_back(image_->shared->globals()[g]);
    bytes += static_cast<int64_t>(shared_.back().size);
  }
  const auto too_much = [&](int64_t wanted, int64_t most, const char* what) {
    return absl::ResourceExhaustedError(
        absl::StrCat("too much shared memory: kernel ", kernel_->name, " wants ", wanted, " bytes", what, ", there are ", most));
  };
  if (bytes > kStaticShared) return too_much(bytes, kStaticShared, " of static arrays");
  if (bytes + config_->dynamic_shared_bytes > kAllShared) return too_much(bytes + config_->dynamic_shared_bytes, kAllShared, "");
  shared_.push_back({"", image_->shared->dynamic_offset(), static_cast<size_t>(config_->dynamic_shared_bytes)});
  shared_base_ = reinterpret_cast<uintptr_t>(image_->shared->base());
  shared_size_ = image_->shared->size();
  error_ = absl::OkStatus();
  steps_left_ = options_->max_steps;
  order_ = RandomOrder(options_->order_seed);
  last_.assign(image_->sites.size(), {});
  recorded_.assign(options_->count_memory ? image_->sites.size() : 0, {});
  if (options_->count_memory) {
    for (const Site& s : image_->sites) counts_->sites.push_back({s.instruction, s.function});
  }
  launch_start_ = ++now_;
  block_starts_.clear();
  MakeThreads();
  return absl::OkStatus();
}

void Machine::MakeThreads() {
  const auto& b = config_->block;
  const auto n = static_cast<uint32_t>(b[0] * b[1] * b[2]);
  threads_.clear();
  threads_.resize(n);
  for (uint32_t i = 0; i < n; ++i) {
    Thread& t = threads_[i];
    t.index = i;
    t.lane = i % 32;
    t.warp = i / 32;
    const auto x = static_cast<uint32_t>(b[0]), y = static_cast<uint32_t>(b[1]);
    t.id = {i % x, i / x % y, i / x / y};
  }
  ready_.assign(n, 0);
  clock_width_ = 32;
  clocks_.clear();
}

absl::Status Machine::RunBlocks() {
  const auto& g = config_->grid;
  const auto n = static_cast<uint64_t>(g[0]) * static_cast<uint64_t>(g[1]) * static_cast<uint64_t>(g[2]);
  const RandomOrder::Walk walk = order_.WalkOf(n);
  home_ = OwnContext();
  for (uint64_t k = 0; k < n; ++k) {
    RunBlock(static_cast<int64_t>(walk(k)));
    if (!error_.ok()) return error_;
    if (exited_ < threads_.size()) return Stuck();
    if (options_->count_memory) CountBlock();
  }
  if (options_->count_memory) std::erase_if(counts_->sites, [](const SiteCounts& s) { return s.warp_accesses == 0; });
  return absl::OkStatus();
}

void Machine::RunBlock(int64_t block) {
  const auto& g = config_->grid;
  block_ = {static_cast<uint32_t>(block % g[0]), static_cast<uint32_t>(block / g[0] % g[1]), static_cast<uint32_t>(block / g[0] / g[1])};
  block_start_ = last_barrier_ = ++now_;
  if (options_->races) block_starts_.emplace_back(block_start_, block_);
  for (const SharedGlobal& s : shared_) {
    std::memset(image_->shared->shadow().written + s.offset, 0, s.size);
    std::memset(image_->shared->base() + s.offset, 0xa5, s.size);
  }
  warps_.assign((threads_.size() + 31) / 32, {});
  for (NamedBarrier& b : barriers_) {
    b.count = 0;
    b.waiting.clear();
  }
  if (clocks_used_) clocks_.clear();
  clocks_used_ = false;
  exited_ = 0;
  ready_head_ = ready_count_ = 0;
  std::vector<uint32_t> all(threads_.size());
  for (uint32_t i = 0; i < all.size(); ++i) {
    all[i] = i;
    Thread& t = threads_[i];
    t.locals.clear();
    t.copies.clear();
    t.groups.clear();
    warps_[t.warp].lanes |= 1u << t.lane;
    if (kernel_->blocks) stacks_.Prepare(i, &ThreadMain, &t.context);
  }
  Enqueue(absl::MakeSpan(all));
  if (kernel_->blocks) {
    current_ = &threads_[ready_[ready_head_]];
    ready_head_ = (ready_head_ + 1) % ready_.size();
    --ready_count_;
    SwitchContext(home_, current_->context);
  } else {
    stacks_.Prepare(0, &SerialMain, &serial_);
    SwitchContext(home_, serial_);
  }
}

void Machine::ThreadMain() {
  BeginOnFibre();
  Machine& m = TheMachine();
  m.kernel_->entry(m.params_);
  Thread& t = *m.current_;
  t.state = Thread::State::kExited;
  m.warps_[t.warp].exited |= 1u << t.lane;
  ++m.exited_;
  m.SwitchToNext();
}

// No thread can wait: one fibre runs them all.
void Machine::SerialMain() {
  BeginOnFibre();
  Machine& m = TheMachine();
  for (size_t k = 0; k < m.ready_.size(); ++k) {
    m.current_ = &m.threads_[m.ready_[(m.ready_head_ + k) % m.ready_.size()]];
    m.kernel_->entry(m.params_);
  }
  m.exited_ = m.threads();
  Context gone;
  SwitchContext(gone, m.home_);
}

std::string Machine::Place(uint32_t site) const {
  const Site& s = image_->sites[site];
  return absl::StrCat("kernel ", kernel_->name, ", block ", Triple(block_), ", thread ", Triple(current_->id), ", at `", s.instruction,
                      "` in ", s.function);
}

void Machine::Fail(absl::StatusCode code, std::string what, uint32_t site) {
  error_ = absl::Status(code, absl::StrCat(what, "; ", Place(site)));
  std::string().swap(what);
  Context gone;
  SwitchContext(gone, home_);
  __builtin_unreachable();
}

void Machine::Runaway(uint32_t site) {
  Fail(absl::StatusCode::kDeadlineExceeded, absl::StrCat("runaway: more than ", options_->max_steps, " turns of loops in one launch"),
       site);
}

void Machine::EnterFunction(const void* frame, uint32_t site) {
  const char* bottom = kernel_->blocks ? current_->context.bottom : serial_.bottom;
  if (static_cast<const char*>(frame) - bottom < static_cast<ptrdiff_t>(Stacks::kSize / 4)) {
    Fail(absl::StatusCode::kResourceExhausted, "stack overflow: calls nest too deeply", site);
  }
}

}  // namespace tenon::gpu
