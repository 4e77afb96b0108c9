// What a process that serves and trains does all at once, through the C seam: eight threads run one set of programs, forwards whose
// saved values go to backwards and updates in place among them; two more compile, run and drop; one reads all that may be read; and the
// process forks in the middle. Every number is compared, bit by bit, with what one thread alone had before. Meant for ThreadSanitizer too
// (preset tsan); tests/plugin/threads_storm.py is the same above autograd, through PyTorch.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/tenon_c.h"
#include "tests/seam/handles.h"
#include "tests/seam/plain_host.h"

namespace {

using seam::ExecutablePtr, seam::GraphPtr, seam::Taken;

constexpr int kThreads = 8, kForks = 3;
constexpr int64_t kRows = 8, kIn = 16, kOut = 4, kMostRows = 64;

// ---- a framework with one operator, aten.neg.default of dense f32

struct HostTensor {
  std::atomic<int> references = 1;
  std::vector<int64_t> sizes, strides;
  std::vector<float> data;
};

std::atomic<int64_t> operator_calls = 0;

int Negate(void*, TenonOpCall* call) {
  const TenonTensor& x = call->operands[0];
  auto* t = new HostTensor{.sizes = {x.sizes, x.sizes + x.ndim}, .strides = {x.strides, x.strides + x.ndim}};
  int64_t count = 1;
  for (const int64_t size : t->sizes) count *= size;
  for (int64_t k = 0; k < count; ++k) t->data.push_back(-static_cast<const float*>(x.data)[k]);
  call->results[0] = {t, t->data.data(), t->sizes.data(), t->strides.data(), x.dtype, x.ndim};
  operator_calls.fetch_add(1, std::memory_order_relaxed);
  return 0;
}

const TenonHost* Host() {
  static const auto* host = [] {
    auto* h = new TenonHost(*seam::PlainHost());
    h->op_prepare = [](void*, const TenonOpSpec* spec, char** error) -> void* {
      if (std::strcmp(spec->overload, "aten.neg.default") == 0) return new int(1);
      *error = strdup("no such operator");
      return nullptr;
    };
    h->op_release = [](void*, void* op) { delete static_cast<int*>(op); };
    h->op_call = Negate;
    h->tensor_retain = [](void*, void* tensor) { ++static_cast<HostTensor*>(tensor)->references; };
    h->tensor_release = [](void*, void* tensor) {
      auto* t = static_cast<HostTensor*>(tensor);
      if (t != nullptr && --t->references == 0) delete t;
    };
    return h;
  }();
  return host;
}

// ---- graphs: one layer, its backward from what the forward saved, the step of its optimizer; and one that serves calls of many sizes

constexpr char kForward[] = R"(graph "forward" {
  %x = input f32[8,16]{16,1}
  %w = input f32[16,4]{4,1}
  %b = input f32[4]{1}
  %p = aten.mm.default(%x, %w) -> f32[8,4]{4,1}
  %h = aten.add.Tensor(%p, %b) -> f32[8,4]{4,1}
  %a = aten.tanh.default(%h) -> f32[8,4]{4,1}
  %l = aten.sum.default(%a, none) -> f32[]{}
  return (%l, %a)
}
)";
constexpr char kBackward[] = R"(graph "backward" {
  %x = input f32[8,16]{16,1}
  %a = input f32[8,4]{4,1}
  %g = input f32[]{}
  %s = aten.mul.Tensor(%a, %a) -> f32[8,4]{4,1}
  %r = aten.rsub.Scalar(%s, 1, 1) -> f32[8,4]{4,1}
  %d = aten.mul.Tensor(%r, %g) -> f32[8,4]{4,1}
  %t = aten.permute.default(%x, [1, 0]) -> f32[16,8]{1,16}
  %dw = aten.mm.default(%t, %d) -> f32[16,4]{4,1}
  %db = aten.sum.dim_IntList(%d, [0], false, none) -> f32[4]{1}
  return (%dw, %db)
}
)";
constexpr char kUpdate[] = R"(graph "update" {
  %w = input f32[16,4]{4,1}
  %b = input f32[4]{1}
  %dw = input f32[16,4]{4,1}
  %db = input f32[4]{1}
  %sw = aten.mul.Tensor(%dw, 0.0625) -> f32[16,4]{4,1}
  %sb = aten.mul.Tensor(%db, 0.0625) -> f32[4]{1}
  %nw = aten.sub.Tensor(%w, %sw) -> f32[16,4]{4,1}
  %nb = aten.sub.Tensor(%b, %sb) -> f32[4]{1}
  aten.copy_.default(%w, %nw, false) -> alias %w
  aten.copy_.default(%b, %nb, false) -> alias %b
  return ()
}
)";
constexpr char kServe[] = R"(graph "serve" {
  symbols s0 in [2, 64]
  %x = input f32[s0,16]{16,1}
  %w = input f32[16,4]{4,1}
  %p = aten.mm.default(%x, %w) -> f32[s0,4]{4,1}
  %n = aten.neg.default(%p) -> f32[s0,4]{4,1}
  %e = aten.exp.default(%n) -> f32[s0,4]{4,1}
  %s = aten.sum.dim_IntList(%e, [1], true, none) -> f32[s0,1]{1,1}
  %y = aten.div.Tensor(%e, %s) -> f32[s0,4]{4,1}
  return (%y)
}
)";
enum Graphs { kOfForward, kOfBackward, kOfUpdate, kOfServe, kGraphs };
constexpr const char* kTexts[kGraphs] = {kForward, kBackward, kUpdate, kServe};

// x -> n x + n, which no other number's compile gives; a kernel, and a reduction for a second one.
std::string Fresh(int64_t n) {
  const std::string number = std::to_string(n);
  return R"(graph "fresh" {
  %x = input f32[8,16]{16,1}
  %m = aten.mul.Tensor(%x, )" + number + R"() -> f32[8,16]{16,1}
  %y = aten.add.Tensor(%m, )" + number + R"() -> f32[8,16]{16,1}
  %s = aten.sum.dim_IntList(%y, [0], false, none) -> f32[16]{1}
  return (%y, %s)
}
)";
}

GraphPtr Parsed(const std::string& text) {
  char* error = nullptr;
  GraphPtr graph(tenon_graph_parse(text.data(), text.size(), &error));
  if (graph == nullptr) ADD_FAILURE() << Taken(error);
  return graph;
}

// The graphs are shared by all threads.
const TenonGraph* Graph(int k) {
  static const auto* graphs = [] {
    auto* all = new std::vector<GraphPtr>;
    for (const char* text : kTexts) all->push_back(Parsed(text));
    return all;
  }();
  return (*graphs)[static_cast<size_t>(k)].get();
}

// A native program, or NULL and a failure. `rows`: for these alone, where the graph has a symbol.
ExecutablePtr Compiled(const TenonGraph* graph, bool cached, int64_t rows = 0) {
  TenonArg neg = {.kind = 6}, name = {.kind = 6}, number = {.kind = 2, .i = rows};
  neg.s = "aten.neg.default", name.s = "s0";
  const TenonArg pair[] = {name, number};
  const TenonArg symbol = {.kind = 7, .list = pair, .list_size = 2};
  const TenonOption options[] = {{"cache", {.kind = 4, .i = cached}},
                                 {"disable_lowering", {.kind = 7, .list = &neg, .list_size = 1}},
                                 {"symbols", {.kind = 7, .list = &symbol, .list_size = rows != 0}}};
  char* error = nullptr;
  ExecutablePtr executable(tenon_compile(graph, options, 3, nullptr, 0, Host(), &error));
  if (executable == nullptr || tenon_signature(executable.get())->native == 0) {
    ADD_FAILURE() << (executable == nullptr ? Taken(error) : tenon_signature(executable.get())->reason);
    return nullptr;
  }
  return executable;
}

struct Array {
  std::vector<int64_t> sizes, strides;
  std::vector<float> data;

  explicit Array(std::vector<int64_t> of_sizes, int64_t seed = -1) : sizes(std::move(of_sizes)), strides(sizes.size()) {
    int64_t count = 1;
    for (size_t d = sizes.size(); d-- > 0; count *= sizes[d]) strides[d] = count;
    data.resize(static_cast<size_t>(count));
    for (size_t k = 0; seed >= 0 && k < data.size(); ++k) {
      data[k] = static_cast<float>((k * 37 + static_cast<size_t>(seed) * 101) % 61) / 64 - 0.5f;
    }
  }
  TenonTensor tensor() {
    return {nullptr, data.data(), sizes.data(), strides.data(), tenon_dtype_from_name("f32"), static_cast<int32_t>(sizes.size())};
  }
  bool operator==(const Array& other) const {
    return sizes == other.sizes && std::memcmp(data.data(), other.data.data(), data.size() * sizeof(float)) == 0;
  }
};

bool Run(TenonExecutable* executable, std::vector<Array*> inputs, std::vector<Array*> outputs) {
  std::vector<TenonTensor> in, out;
  for (Array* a : inputs) in.push_back(a->tensor());
  for (Array* a : outputs) out.push_back(a->tensor());
  char* error = nullptr;
  if (executable != nullptr && tenon_run(executable, in.data(), out.data(), &error) == TENON_OK) return true;
  ADD_FAILURE() << (executable == nullptr ? "there is no program" : Taken(error));
  return false;
}

using Programs = std::vector<ExecutablePtr>;

Programs CompiledAll(bool cached) {
  Programs all;
  for (int k = 0; k < kGraphs; ++k) all.push_back(Compiled(Graph(k), cached));
  return all;
}

// Three steps of two accumulated gradients each, from the beginning: the weights that come of it.
struct Weights {
  Array w{{kIn, kOut}, 0}, b{{kOut}, 1};
  float loss = 0;
  bool operator==(const Weights&) const = default;
};
Weights Trained(const Programs& programs, int seed) {
  Weights all;
  for (int step = 0; step < 3; ++step) {
    Array sum_w({kIn, kOut}), sum_b({kOut});
    for (int part = 0; part < 2; ++part) {
      Array x({kRows, kIn}, 10 * seed + 2 * step + part), loss({}), saved({kRows, kOut}), one({}), dw({kIn, kOut}), db({kOut});
      one.data[0] = 1;
      if (!Run(programs[kOfForward].get(), {&x, &all.w, &all.b}, {&loss, &saved})) return all;
      if (!Run(programs[kOfBackward].get(), {&x, &saved, &one}, {&dw, &db})) return all;
      for (size_t k = 0; k < dw.data.size(); ++k) sum_w.data[k] += dw.data[k];
      for (size_t k = 0; k < db.data.size(); ++k) sum_b.data[k] += db.data[k];
      all.loss += loss.data[0];
    }
    if (!Run(programs[kOfUpdate].get(), {&all.w, &all.b, &sum_w, &sum_b}, {})) return all;
  }
  return all;
}

Array Served(TenonExecutable* executable, int64_t rows) {
  Array x({rows, kIn}, rows), w({kIn, kOut}, 7), y({rows, kOut});
  Run(executable, {&x, &w}, {&y});
  return y;
}

bool CompilesAndRuns(int64_t n, bool cached) {
  const ExecutablePtr executable = Compiled(Parsed(Fresh(n)).get(), cached);
  Array x({kRows, kIn}, 3), y({kRows, kIn}), s({kIn});
  if (!Run(executable.get(), {&x}, {&y, &s})) return false;
  for (size_t k = 0; k < y.data.size(); ++k) {
    if (y.data[k] != x.data[k] * static_cast<float>(n) + static_cast<float>(n)) return false;
  }
  return true;
}

int64_t CacheCount(const std::string& what) {
  const std::string stats = Taken(tenon_cache_stats()), key = "\"" + what + "\"";
  const size_t at = stats.find(key), digit = at == stats.npos ? at : stats.find_first_of("0123456789", at + key.size());
  return digit == stats.npos ? -1 : std::stoll(stats.substr(digit));
}

// ---- what one thread alone computes

struct Expected {
  std::vector<Weights> trained;  // by seed
  std::vector<Array> served;     // by rows
};

Expected Alone() {
  const Programs programs = CompiledAll(/*cached=*/false);
  Expected expected;
  for (int t = 0; t < kThreads; ++t) expected.trained.push_back(Trained(programs, t));
  for (int64_t rows = 0; rows <= kMostRows; ++rows) {
    expected.served.push_back(rows < 2 ? Array({rows, kOut}) : Served(programs[kOfServe].get(), rows));
  }
  return expected;
}

// One thread's round: it trains, and serves calls of a few sizes by the program for all, asked for anew, and by one of that size alone.
bool Round(const Programs& programs, const Programs& exact, const Expected& expected, int thread, int64_t round) {
  if (!(Trained(programs, thread) == expected.trained[static_cast<size_t>(thread)])) return false;
  const ExecutablePtr serve = Compiled(Graph(kOfServe), /*cached=*/true);
  for (int64_t k = 0; k < 5; ++k) {
    const int64_t rows = 2 + (7 * round + 11 * thread + 5 * k) % (kMostRows - 1);
    if (!(Served(k % 2 == 0 ? serve.get() : programs[kOfServe].get(), rows) == expected.served[static_cast<size_t>(rows)])) return false;
  }
  const auto hot = static_cast<size_t>(thread) % exact.size();
  const auto rows = static_cast<int64_t>(8 * (hot + 1));
  return Served(exact[hot].get(), rows) == expected.served[static_cast<size_t>(rows)];
}

// What there is to be read of programs, cache and profiles while they run.
bool Reads(const Programs& programs) {
  char* error = nullptr;
  const bool profiles = tenon_profile_start(1000, &error) == 0;
  tenon_set_profiling(1);
  bool read = CacheCount("compiles") > 0;
  for (const ExecutablePtr& e : programs) {
    const ExecutablePtr held((tenon_executable_retain(e.get()), e.get()));
    read &= !Taken(tenon_executable_stats(held.get(), 0)).empty() && !Taken(tenon_executable_info(held.get())).empty() &&
            !Taken(tenon_executable_text(held.get())).empty() && !Taken(tenon_executable_report(held.get())).empty();
  }
  tenon_set_profiling(0);
  if (!profiles) return false;
  TenonProfile* profile = tenon_profile_stop(&error);
  read &= profile != nullptr && !Taken(tenon_profile_trace(profile, &error)).empty();
  tenon_profile_release(profile);
  return read;
}

// 0: a child runs what its parent had compiled, and compiles.
int InChild(const Programs& programs, const Programs& exact, const Expected& expected, int64_t fork) {
#if defined(__SANITIZE_THREAD__)
  return 0;  // ThreadSanitizer's allocator holds its locks over fork() no more than AddressSanitizer's: one in twenty waited for one
#endif
  alarm(120);  // a deadlock ends it
  if (!Round(programs, exact, expected, 1, fork)) return 1;
  if (!CompilesAndRuns(1'000'000 + fork, /*cached=*/true)) return 2;
  return testing::Test::HasFailure() ? 3 : 0;
}

TEST(SeamThreads, TrainServeCompileDropReadAndForkAtOnce) {
#if defined(__SANITIZE_ADDRESS__)
  const int forks = 0;  // AddressSanitizer's allocator does not hold its locks over fork(): a child may wait for one for ever
#else
  const int forks = kForks;
#endif
  const Expected expected = Alone();
  ASSERT_FALSE(HasFailure());
  tenon_cache_clear();
  const int64_t compiles_before = CacheCount("compiles"), failures_before = CacheCount("failures");

  // All threads want the same programs at once: each is compiled once.
  std::vector<Programs> of_thread(kThreads);
  {
    std::barrier together(kThreads);
    std::vector<std::thread> threads;
    for (Programs& mine : of_thread) {
      threads.emplace_back([&] {
        together.arrive_and_wait();
        mine = CompiledAll(/*cached=*/true);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  ASSERT_FALSE(HasFailure());
  EXPECT_EQ(CacheCount("compiles") - compiles_before, kGraphs);
  Programs exact;
  for (const int64_t rows : {8, 16}) exact.push_back(Compiled(Graph(kOfServe), /*cached=*/false, rows));

  std::atomic<bool> stop = false;
  std::atomic<int64_t> wrong = 0, fresh = 0, dropped = 0, reads = 0, calls_before = operator_calls.load();
  std::vector<std::atomic<int64_t>> rounds(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const auto me = static_cast<size_t>(t);
      while (!stop) {
        wrong += !Round(of_thread[me], exact, expected, t, rounds[me]);
        rounds[me].fetch_add(1);
      }
    });
  }
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t k = 0; !stop; ++k) {
        wrong += !CompilesAndRuns(2 + 2 * k + t, /*cached=*/k % 2 == 0);
        fresh += k % 2 == 0;
        if (k % 3 == 2) {
          tenon_cache_clear();
          ++dropped;
        }
      }
    });
  }
  threads.emplace_back([&] {
    while (!stop) {
      wrong += !Reads(of_thread[0]);
      ++reads;
    }
  });

  // Everybody has done something since `marks` were taken.
  const auto all_go_on = [&](const std::vector<int64_t>& marks, int64_t fresh_mark, int64_t reads_mark) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(5);
    while (std::chrono::steady_clock::now() < deadline) {
      bool all = fresh > fresh_mark && reads > reads_mark;
      for (size_t t = 0; t < kThreads; ++t) all &= rounds[t] > marks[t];
      if (all) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  };
  const auto marks = [&] { return std::vector<int64_t>(rounds.begin(), rounds.end()); };
  EXPECT_TRUE(all_go_on(marks(), fresh, reads));
  for (int64_t fork_number = 0; fork_number < forks; ++fork_number) {
    const pid_t child = fork();
    if (child == 0) _exit(InChild(of_thread[1], exact, expected, fork_number));
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), 0);
    EXPECT_TRUE(all_go_on(marks(), fresh, reads)) << "after fork " << fork_number;
  }
  while (dropped < 2) std::this_thread::yield();
  stop = true;
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(wrong, 0);
  const int64_t compiles = CacheCount("compiles") - compiles_before;
  EXPECT_GE(compiles, kGraphs + fresh);
  EXPECT_LE(compiles, kGraphs + fresh + dropped) << "what serves is compiled again once a clear, whoever asks";
  EXPECT_EQ(CacheCount("failures"), failures_before);
  int64_t all = 0;
  for (const auto& count : rounds) all += count;
  EXPECT_EQ(operator_calls - calls_before, 6 * all) << "the framework's operator ran in each call that serves, and nowhere else";
  std::printf("%lld rounds, %lld programs compiled, %lld clears, %lld reads, %d forks\n", static_cast<long long>(all),
              static_cast<long long>(fresh.load()), static_cast<long long>(dropped.load()), static_cast<long long>(reads.load()), forks);
}

}  // namespace
