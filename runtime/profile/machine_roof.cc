#include "runtime/profile/machine_roof.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "runtime/clock.h"
#include "runtime/fork.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tenon {
namespace {

constexpr int kTrials = 3;
constexpr double kTrialNs = 8e6;
constexpr int64_t kBlockBytes = 64 << 10;  // read between two looks at the clock
constexpr int kRounds = 512;               // of the multiply-adds between two looks
constexpr int kChains = 12;                // latency times throughput of multiply-adds, and registers that are always there

// A loop of kRounds * kChains multiply-adds per lane, and one that reads n bytes (a multiple of 512). What they return is used, so that
// they are not left out.
struct Probe {
  int lanes;
  float (*multiply_add)(float x);
  uint64_t (*read)(const char* p, int64_t n);
};

float PlainMultiplyAdd(float x) {
  float sums[16 * kChains];
  std::fill(std::begin(sums), std::end(sums), x);
  for (int round = 0; round < kRounds; ++round) {
#if defined(__FMA__) || defined(__aarch64__)
    for (float& s : sums) s = __builtin_fmaf(s, 0.999f, 0.5f);
#else
    for (float& s : sums) s = s * 0.999f + 0.5f;
#endif
  }
  for (int k = 1; k < 16 * kChains; ++k) sums[0] += sums[k];
  return sums[0];
}
uint64_t PlainRead(const char* p, int64_t n) {
  uint64_t sums[8] = {};
  for (int64_t i = 0; i < n; i += 64) {
    for (int k = 0; k < 8; ++k) sums[k] ^= reinterpret_cast<const uint64_t*>(p + i)[k];
  }
  uint64_t all = 0;
  for (uint64_t s : sums) all ^= s;
  return all;
}

#if defined(__x86_64__)
// Arrays of vectors whose loops are unrolled stay in registers.
__attribute__((target("avx512f"))) float Avx512MultiplyAdd(float x) {
  __m512 sums[kChains];
  const __m512 factor = _mm512_set1_ps(0.999f), addend = _mm512_set1_ps(0.5f);
#pragma GCC unroll 12
  for (int k = 0; k < kChains; ++k) sums[k] = _mm512_set1_ps(x + static_cast<float>(k));
  for (int round = 0; round < kRounds; ++round) {
#pragma GCC unroll 12
    for (int k = 0; k < kChains; ++k) sums[k] = _mm512_fmadd_ps(sums[k], factor, addend);
  }
#pragma GCC unroll 12
  for (int k = 1; k < kChains; ++k) sums[0] = _mm512_add_ps(sums[0], sums[k]);
  return _mm512_cvtss_f32(sums[0]);
}
__attribute__((target("avx512f"))) uint64_t Avx512Read(const char* p, int64_t n) {
  __m512i sums[8];
#pragma GCC unroll 8
  for (int k = 0; k < 8; ++k) sums[k] = _mm512_setzero_si512();
  for (int64_t i = 0; i < n; i += 512) {
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) sums[k] = _mm512_xor_si512(sums[k], _mm512_loadu_si512(p + i + 64 * k));
  }
#pragma GCC unroll 8
  for (int k = 1; k < 8; ++k) sums[0] = _mm512_xor_si512(sums[0], sums[k]);
  uint64_t lanes[8];
  _mm512_storeu_si512(lanes, sums[0]);
  return lanes[0];
}
__attribute__((target("avx2,fma"))) float Avx2MultiplyAdd(float x) {
  __m256 sums[kChains];
  const __m256 factor = _mm256_set1_ps(0.999f), addend = _mm256_set1_ps(0.5f);
#pragma GCC unroll 12
  for (int k = 0; k < kChains; ++k) sums[k] = _mm256_set1_ps(x + static_cast<float>(k));
  for (int round = 0; round < kRounds; ++round) {
#pragma GCC unroll 12
    for (int k = 0; k < kChains; ++k) sums[k] = _mm256_fmadd_ps(sums[k], factor, addend);
  }
#pragma GCC unroll 12
  for (int k = 1; k < kChains; ++k) sums[0] = _mm256_add_ps(sums[0], sums[k]);
  return _mm256_cvtss_f32(sums[0]);
}
__attribute__((target("avx2"))) uint64_t Avx2Read(const char* p, int64_t n) {
  __m256i sums[8];
#pragma GCC unroll 8
  for (int k = 0; k < 8; ++k) sums[k] = _mm256_setzero_si256();
  for (int64_t i = 0; i < n; i += 256) {
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) {
      sums[k] = _mm256_xor_si256(sums[k], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + i + 32 * k)));
    }
  }
#pragma GCC unroll 8
  for (int k = 1; k < 8; ++k) sums[0] = _mm256_xor_si256(sums[0], sums[k]);
  return static_cast<uint64_t>(_mm256_extract_epi64(sums[0], 0));
}
#endif

Probe BestProbe() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return {16, Avx512MultiplyAdd, Avx512Read};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {8, Avx2MultiplyAdd, Avx2Read};
#endif
  return {16, PlainMultiplyAdd, PlainRead};
}

// Every thread works till the time is over; the rate is of all their work from the first begin to the last end, in units per ns.
template <typename Work>
double BestRate(const TenonHost& host, int threads, const Work& work) {
  struct Trial {
    const Work* work;
    std::vector<double> done;
    std::vector<uint64_t> begins, ends;
    uint64_t ticks;
  };
  double best = 0;
  for (int t = 0; t < kTrials; ++t) {
    const auto n = static_cast<size_t>(threads);
    Trial trial{&work, std::vector<double>(n), std::vector<uint64_t>(n), std::vector<uint64_t>(n), NsToTicks(kTrialNs)};
    host.parallel_for(host.context, 0, threads, 1,
                      [](void* arg, int64_t first, int64_t last) {
                        Trial& trial = *static_cast<Trial*>(arg);
                        for (int64_t k = first; k < last; ++k) {
                          trial.begins[k] = Ticks();
                          double done = 0;
                          do {
                            done += (*trial.work)(k);
                            trial.ends[k] = Ticks();
                          } while (trial.ends[k] - trial.begins[k] < trial.ticks);
                          trial.done[k] = done;
                        }
                      },
                      &trial);
    double done = 0;
    for (double d : trial.done) done += d;
    const uint64_t begin = *std::min_element(trial.begins.begin(), trial.begins.end());
    const uint64_t end = *std::max_element(trial.ends.begin(), trial.ends.end());
    best = std::max(best, done / TicksToNs(end - begin));
  }
  return best;
}

std::atomic<uint64_t> unused;  // where the loops' results go

double MultiplyAddRate(const TenonHost& host, const Probe& probe, int threads) {
  return BestRate(host, threads, [&](int64_t k) {
    unused.store(static_cast<uint64_t>(probe.multiply_add(static_cast<float>(k))), std::memory_order_relaxed);
    return 2.0 * kRounds * kChains * probe.lanes;
  });
}

// Each thread reads its own part of `memory`, again and again.
double ReadRate(const TenonHost& host, const Probe& probe, int threads, const char* memory, int64_t bytes_per_thread) {
  const int64_t blocks = std::max<int64_t>(1, bytes_per_thread / kBlockBytes), size = std::min(bytes_per_thread, kBlockBytes);
  std::vector<int64_t> next(static_cast<size_t>(threads) * 8);  // a cache line each
  return BestRate(host, threads, [&](int64_t k) {
    int64_t& block = next[static_cast<size_t>(k) * 8];
    unused.store(probe.read(memory + k * bytes_per_thread + block * size, size), std::memory_order_relaxed);
    block = block + 1 == blocks ? 0 : block + 1;
    return static_cast<double>(size);
  });
}

int64_t L2Bytes() {
  const int64_t bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return (bytes > 0 ? bytes : 256 << 10) / kBlockBytes * kBlockBytes;
}

MachineRoof Measure(const TenonHost& host, int threads) {
  const Probe probe = BestProbe();
  const int64_t l2 = L2Bytes(), l3 = SharedCacheBytes();
  // Memory is what caches cannot hold, within reason.
  const int64_t all = std::clamp<int64_t>(4 * l3, 64 << 20, 512 << 20) / (threads * kBlockBytes) * (threads * kBlockBytes);
  const std::unique_ptr<char, void (*)(void*)> memory(static_cast<char*>(std::aligned_alloc(4096, static_cast<size_t>(all))), std::free);
  MachineRoof roof{.threads = threads};
  roof.f32_gflop_per_s = MultiplyAddRate(host, probe, threads);
  struct Touch {
    char* memory;
    int64_t share;
  } touch{memory.get(), all / threads};
  if (memory == nullptr) throw std::bad_alloc();
  host.parallel_for(host.context, 0, threads, 1,  // by those who will read it
                    [](void* arg, int64_t first, int64_t last) {
                      const Touch& t = *static_cast<Touch*>(arg);
                      std::fill(t.memory + first * t.share, t.memory + last * t.share, static_cast<char>(1));
                    },
                    &touch);
  const auto rate = [&](int64_t bytes_per_thread) {
    return ReadRate(host, probe, threads, memory.get(), std::max(kBlockBytes, bytes_per_thread / kBlockBytes * kBlockBytes));
  };
  roof.levels.push_back({"L2", threads * l2, rate(l2 / 2)});
  // A little more than the level below holds: the best that this one gives, whatever part of it is ours.
  if (l3 > threads * l2) roof.levels.push_back({"L3", l3, rate(std::min(2 * l2, l3 / threads))});
  roof.levels.push_back({"memory", INT64_MAX, rate(all / threads)});
  // A level is never slower than a larger one: what was measured beside other work may say so.
  for (size_t k = roof.levels.size() - 1; k-- > 0;)
    roof.levels[k].gb_per_s = std::max(roof.levels[k].gb_per_s, roof.levels[k + 1].gb_per_s);
  return roof;
}

}  // namespace

int64_t SharedCacheBytes() {
  std::set<std::string> seen;
  int64_t bytes = 0;
  for (int cpu = 0;; ++cpu) {
    const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache/index3/";
    std::string sharers;
    int64_t kilobytes = 0;  // "32768K"
    if (!(std::ifstream(folder + "size") >> kilobytes) || !(std::ifstream(folder + "shared_cpu_list") >> sharers)) return bytes;
    if (seen.insert(sharers).second) bytes += kilobytes << 10;
  }
}

const MachineRoof::Level& MachineRoof::LevelOf(int64_t bytes) const {
  return *std::find_if(levels.begin(), levels.end() - 1, [&](const Level& l) { return bytes <= l.bytes; });
}

double MachineRoof::LeastNs(int64_t bytes, int64_t flops, bool f64) const {
  return std::max(static_cast<double>(bytes) / LevelOf(bytes).gb_per_s, static_cast<double>(flops) / (f32_gflop_per_s / (f64 ? 2 : 1)));
}

const MachineRoof& RoofOf(const TenonHost& host) {
  static auto* mutex = new std::mutex;
  static auto* roofs = new std::map<int, MachineRoof>;
  const int threads = std::max(1, host.num_threads(host.context));
  {
    ForkSection section;
    std::lock_guard lock(*mutex);
    if (const auto it = roofs->find(threads); it != roofs->end()) return it->second;
  }
  MachineRoof measured = Measure(host, threads);
  ForkSection section;
  std::lock_guard lock(*mutex);
  return roofs->try_emplace(threads, std::move(measured)).first->second;
}

}  // namespace tenon
