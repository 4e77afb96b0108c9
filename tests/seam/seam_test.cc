// Each entry of runtime/tenon_c.h, with each allocation of its own failing in turn: it gives an error (or does without), never ends
// the process, and works afterwards. Twice: that allocation alone fails, and all from it on.
//
// Seen from the other side of the seam: this links libtenon.so and nothing else of tenon.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/tenon_c.h"
#include "tests/seam/failing_allocations.h"
#include "tests/seam/handles.h"
#include "tests/seam/two_op_host.h"

namespace {

using seam::Disarmed, seam::ExecutablePtr, seam::GraphPtr, seam::Host, seam::HostTensor, seam::NewTensor;

constexpr char kGraph[] = R"(graph "g" {
  %x = input f32[4,8]{8,1}
  %n = aten.neg.default(%x) -> f32[4,8]{8,1}
  %y = aten.mul.Tensor(%n, %x) -> f32[4,8]{8,1}
  return (%y)
}
)";
constexpr char kHlo[] = R"(HloModule m
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
ENTRY e {
  x = f32[4,8] parameter(0)
  two = f32[] constant(2)
  three = f32[] constant(3)
  six = f32[] multiply(two, three)
  all = f32[4,8] broadcast(six), dimensions={}
  y = f32[4,8] multiply(x, all)
  zero = f32[] constant(0)
  s = f32[4] reduce(y, zero), dimensions={1}, to_apply=add
  z = c64[4,8] complex(x, x)
  f = c64[4,8] fft(z), fft_type=FFT, fft_length={8}
  r = f32[4,8] real(f)
  ROOT t = (f32[4,8], f32[4], f32[4,8]) tuple(y, s, r)
}
)";

// What an entry came to: whether it did what it is for, and what it told.
struct Outcome {
  bool done = false;
  std::string error;
};

// Takes the strings that entries give.
std::string Taken(char* text) {
  const Disarmed disarmed;
  std::string all = text == nullptr ? "" : text;
  tenon_string_free(text);
  return all;
}
Outcome Told(bool done, char* error) { return {done, Taken(error)}; }
// Of an entry without an error of its own: no text, or one that says so.
Outcome ToldText(char* text) {
  const std::string all = Taken(text);
  const bool failed_to = all.empty() || all.rfind("{\"error\"", 0) == 0;
  return {!failed_to, failed_to ? "no text" : ""};
}

using Entry = std::function<Outcome()>;

// n = 1, 2, 3, ... until no allocation is the n-th; from `dense` on by steps of a twentieth.
void EachAllocationFails(const char* name, const Entry& entry, int64_t dense = 1000, bool must_work = true) {
  if (must_work) {
    ASSERT_TRUE(entry().done) << name << " does not work to begin with";
  }
  for (const bool later : {false, true}) {
    int64_t errors = 0, tried = 0;
    for (int64_t n = 1;; n += n < dense ? 1 : n / 20) {
      seam::FailAllocation(n, later);
      const Outcome outcome = entry();
      const int64_t allocations = seam::StopFailing();
      ++tried;
      if (allocations < n) break;
      if (!outcome.done) {
        ++errors;
        EXPECT_FALSE(outcome.error.empty()) << name << ", allocation " << n << ": failed and told nothing";
      }
      const Outcome after = entry();
      ASSERT_EQ(after.done, must_work) << name << " no longer works after allocation " << n << " failed: " << after.error;
      ASSERT_LT(n, 10'000'000) << name << " never stops allocating";
    }
    std::printf("%-28s %s: %lld tried, %lld errors\n", name, later ? "all from it on" : "one fails     ", static_cast<long long>(tried),
                static_cast<long long>(errors));
  }
}

struct HloDeleter {
  void operator()(TenonHlo* h) const { tenon_hlo_release(h); }
};
using HloPtr = std::unique_ptr<TenonHlo, HloDeleter>;

// FrameworkArg::Kind's numbers.
enum { kNone, kTensor, kInt, kFloat, kBool, kComplex, kString, kList, kDtype, kLayout, kDevice, kMemoryFormat, kSymInt };

TenonArg Arg(int32_t kind, int64_t i = 0) {
  TenonArg arg = {};
  arg.kind = kind;
  arg.i = i;
  return arg;
}
TenonArg Text(const char* s, int32_t kind = kString) {
  TenonArg arg = Arg(kind);
  arg.s = s;
  return arg;
}
template <typename Elements>
TenonArg List(const Elements& elements) {  // which live as long
  TenonArg arg = Arg(kList);
  arg.list = std::data(elements);
  arg.list_size = static_cast<int64_t>(std::size(elements));
  return arg;
}

using Options = std::vector<TenonOption>;
const Options kQuick = {{"compile_threads", Arg(kInt, 1)}};
const Options kQuickAlone = {{"compile_threads", Arg(kInt, 1)}, {"cache", Arg(kBool, 0)}};
const Options kEager = {{"tier", Text("eager_program")}, {"reason", Text("wanted")}};
const Options kEagerAlone = {{"tier", Text("eager_program")}, {"reason", Text("wanted")}, {"cache", Arg(kBool, 0)}};

GraphPtr ParseGraph(const char* text, char** error) { return GraphPtr(tenon_graph_parse(text, std::strlen(text), error)); }
const TenonGraph* Graph() {
  static const TenonGraph* graph = [] {
    const Disarmed disarmed;
    return ParseGraph(kGraph, nullptr).release();
  }();
  return graph;
}

ExecutablePtr Compile(const TenonGraph* graph, const Options& options, char** error) {
  return ExecutablePtr(tenon_compile(graph, options.data(), static_cast<int64_t>(options.size()), nullptr, 0, Host(), error));
}
ExecutablePtr Compiled(const Options& options = kQuick) {
  char* error = nullptr;
  ExecutablePtr e = Compile(Graph(), options, &error);
  EXPECT_NE(e, nullptr) << Taken(error);
  return e;
}
HloPtr Parse(const char* text, char** error) { return HloPtr(tenon_hlo_parse(text, std::strlen(text), 0, error)); }
HloPtr Parsed() {
  char* error = nullptr;
  HloPtr h = Parse(kHlo, &error);
  EXPECT_NE(h, nullptr) << Taken(error);
  return h;
}

// 1, 2, ..., 32 as f32[4,8].
struct Input {
  std::vector<int64_t> sizes = {4, 8}, strides = {8, 1};
  std::vector<float> data = std::vector<float>(32);
  TenonTensor tensor;
  Input() {
    for (size_t k = 0; k < data.size(); ++k) data[k] = static_cast<float>(k + 1);
    tensor = {nullptr, data.data(), sizes.data(), strides.data(), tenon_dtype_from_name("f32"), 2};
  }
};

// One run of the graph; what it returned is right.
Outcome RunGraph(TenonExecutable* e, const Input& in, HostTensor* owned) {
  TenonTensor input = in.tensor;
  uint8_t gives[] = {0};
  if (owned != nullptr) {
    input.tensor = owned;
    ++owned->references;
    gives[0] = 1;
  }
  float out[32] = {};
  TenonTensor output = {nullptr, out, in.sizes.data(), in.strides.data(), in.tensor.dtype, 2};
  char* error = nullptr;
  const int code = owned != nullptr ? tenon_run_owned(e, &input, gives, &output, &error) : tenon_run(e, &input, &output, &error);
  const Disarmed disarmed;
  if (code == TENON_OK) {
    const float* got = output.tensor != nullptr ? static_cast<HostTensor*>(output.tensor)->data.data() : out;
    for (int k = 0; k < 32; ++k) EXPECT_EQ(got[k], -in.data[k] * in.data[k]) << k;
    if (output.tensor != nullptr) Host()->tensor_release(nullptr, output.tensor);
  }
  return Told(code == TENON_OK, error);
}

class Seam : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    seam::FindForeignCode();
    Host();
    const std::filesystem::path repro = std::filesystem::temp_directory_path() / ("tenon_seam_" + std::to_string(getpid()));
    setenv("TENON_REPRO_DIR", repro.c_str(), 1);
  }
  static void TearDownTestSuite() {
    std::error_code ignored;
    std::filesystem::remove_all(getenv("TENON_REPRO_DIR"), ignored);
  }
  void SetUp() override {
    if (!seam::KnowsWhoAllocates()) GTEST_SKIP() << "LLVM is linked statically, or symbols are stripped: who allocates is not to be told";
  }
};

TEST_F(Seam, CompilesAndReleases) {
  // What fails inside of a compile falls back to the eager program, which is no error.
  const auto compile = [](const Options& options) {
    return [&options] {
      char* error = nullptr;
      const ExecutablePtr e = Compile(Graph(), options, &error);
      return Told(e != nullptr, error);
    };
  };
  EachAllocationFails("tenon_compile", compile(kQuickAlone), 150);
  EachAllocationFails("tenon_compile, eager", compile(kEagerAlone), 200);
  EachAllocationFails("tenon_compile, cached", [&] {
    tenon_cache_clear();
    return compile(kQuick)();
  }, 450);  // each one up to the cache's own
  EachAllocationFails("tenon_compile, known", compile(kQuick));
  EXPECT_EQ(Taken(tenon_cache_stats()).find("\"hits\":0"), std::string::npos);
}

// f32[4,8] row-major.
constexpr int64_t kSizes[] = {4, 8}, kStrides[] = {8, 1};
TenonMeta Dense() {
  TenonMeta meta = {};
  meta.dtype = tenon_dtype_from_name("f32");
  meta.ndim = 2;
  meta.sizes = kSizes;
  meta.strides = kStrides;
  return meta;
}
TenonMeta Meta(int32_t kind, int64_t number = 0) {
  TenonMeta meta = {};
  meta.kind = kind;
  meta.offset = number;
  return meta;
}
// Without memory of its own.
template <typename Args = std::initializer_list<TenonArg>, typename Names = std::initializer_list<const char*>,
          typename Metas = std::initializer_list<TenonMeta>>
int64_t AddNode(TenonGraph* g, const char* op, const Args& args, const Names& names, const Metas& metas, char** error,
                bool mutates = false) {
  TenonNode node = {};
  node.op = op;
  node.args = std::data(args);
  node.num_args = static_cast<int64_t>(std::size(args));
  node.names = std::data(names);
  node.metas = std::data(metas);
  node.num_results = static_cast<int64_t>(std::size(names));
  node.mutates_first = mutates ? 1 : 0;
  return tenon_graph_node(g, &node, error);
}

// kGraph, call by call.
GraphPtr BuiltGraph(char** error) {
  GraphPtr g(tenon_graph_new("g", error));
  const TenonMeta meta = Dense();
  if (g == nullptr || tenon_graph_input(g.get(), "x", &meta, error) != 0) return nullptr;
  if (AddNode(g.get(), "aten.neg.default", {Arg(kTensor, 0)}, {"n"}, {meta}, error) != 1) return nullptr;
  if (AddNode(g.get(), "aten.mul.Tensor", {Arg(kTensor, 1), Arg(kTensor, 0)}, {"y"}, {meta}, error) != 2) return nullptr;
  const TenonArg y = Arg(kTensor, 2);
  return tenon_graph_return(g.get(), &y, 1, error) == 0 ? std::move(g) : nullptr;
}

// All that a graph can have.
constexpr char kWholeGraph[] = R"(graph "whole" {
  symbols s0 in [2, 1024], s1
  %p0 = input f32[8,s0]{s0,1}
  %p1 = input symint s0
  %p2 = input bf16[2,3]{0,1}+4 on "cuda:0"
  %n = input none
  %o = input other("sparse \"csr\"")
  %c0 = constant f32[3]{1}
  %lit = literal s64[2]{1} [1, -2]
  %add = aten.add.Tensor(%p0, %p0, 1) -> f32[8,s0]{s0,1} @ "layer.0" "net.py:12"
  %v, %i = aten.max.dim(%add, 1, false) -> f32[8]{1}, s64[8]{1}
  %x = aten.full.default([2, sym(2*s0+1)], 1e-05, dtype:bf16, layout:strided, device:cpu, true, format:contiguous, "a\"b", none, complex(1.0,-2.0), %add) -> bf16[2]{1}
  aten.copy_.default(%p0, %add, false) -> alias %p0
  aten._assert.default(%p0) -> none
  return (%v, none, %p0, sym(2*s0+1), sym(5), sym(s0))
}
)";

GraphPtr BuiltWholeGraph(char** error) {
  GraphPtr graph(tenon_graph_new("whole", error));
  TenonGraph* g = graph.get();
  if (g == nullptr || tenon_graph_symbol(g, "s0", 2, 1024, 0, error) != 0) return nullptr;
  if (tenon_graph_symbol(g, "s1", 0, INT64_MAX, 0, error) != 0) return nullptr;
  const int64_t sizes[] = {8, 0}, strides[] = {0, 1}, two[] = {2}, three[] = {3}, eight[] = {8}, one[] = {1};
  const char* const by_symbol[] = {nullptr, "s0", "s0", nullptr, nullptr};
  TenonMeta p0 = Dense();
  p0.sizes = sizes, p0.strides = strides, p0.expressions = by_symbol;
  const char* const s0 = "s0";
  TenonMeta p1 = Meta(TENON_META_SYMINT);
  p1.expressions = &s0;
  const int64_t sizes2[] = {2, 3}, strides2[] = {0, 1};
  TenonMeta p2 = Dense();
  p2.dtype = tenon_dtype_from_name("bf16"), p2.sizes = sizes2, p2.strides = strides2, p2.offset = 4, p2.device = "cuda:0";
  const TenonMeta n = Meta(TENON_META_NONE);
  TenonMeta o = Meta(TENON_META_OTHER);
  o.other = "sparse \"csr\"";
  const auto vector = [&](const char* dtype, const int64_t* size) {
    TenonMeta meta = {};
    meta.dtype = tenon_dtype_from_name(dtype), meta.ndim = 1, meta.sizes = size, meta.strides = one;
    return meta;
  };
  const TenonMeta c0 = vector("f32", three), lit = vector("s64", two), v = vector("f32", eight), i = vector("s64", eight),
                  x = vector("bf16", two);
  const int64_t elements[] = {1, -2};
  if (tenon_graph_input(g, "p0", &p0, error) < 0 || tenon_graph_input(g, "p1", &p1, error) < 0 ||
      tenon_graph_input(g, "p2", &p2, error) < 0 || tenon_graph_input(g, "n", &n, error) < 0 || tenon_graph_input(g, "o", &o, error) < 0 ||
      tenon_graph_constant(g, "c0", &c0, error) < 0 ||
      tenon_graph_literal(g, "lit", &lit, elements, sizeof(elements), error) < 0) {
    return nullptr;
  }
  const TenonArg add_args[] = {Arg(kTensor, 0), Arg(kTensor, 0), Arg(kInt, 1)};
  const char* const add_name = "add";
  TenonNode add = {};
  add.op = "aten.add.Tensor", add.args = add_args, add.num_args = 3, add.names = &add_name, add.metas = &p0, add.num_results = 1;
  add.module_path = "layer.0", add.source = "net.py:12";
  const int64_t sum = tenon_graph_node(g, &add, error);
  if (sum < 0 || sum != tenon_graph_value(g, "add", error)) return nullptr;
  if (AddNode(g, "aten.max.dim", {Arg(kTensor, sum), Arg(kInt, 1), Arg(kBool, 0)}, {"v", "i"}, {v, i}, error) < 0) return nullptr;
  const TenonArg shape[] = {Arg(kInt, 2), Text("2*s0+1", kSymInt)};
  TenonArg small = Arg(kFloat), dtype = Arg(kDtype), complex = Arg(kComplex);
  small.f = 1e-5, dtype.dtype = x.dtype, complex.f = 1, complex.im = -2;
  if (AddNode(g, "aten.full.default",
              {List(shape), small, dtype, Text("strided", kLayout), Text("cpu", kDevice), Arg(kBool, 1), Text("contiguous", kMemoryFormat),
               Text("a\"b"), Arg(kNone), complex, Arg(kTensor, sum)},
              {"x"}, {x}, error) < 0 ||
      AddNode(g, "aten.copy_.default", {Arg(kTensor, 0), Arg(kTensor, sum), Arg(kBool, 0)}, {}, {}, error, true) < 0 ||
      AddNode(g, "aten._assert.default", {Arg(kTensor, 0)}, {}, {}, error) < 0) {
    return nullptr;
  }
  const TenonArg outputs[] = {Arg(kTensor, tenon_graph_value(g, "v", error)), Arg(kNone), Arg(kTensor, 0), Text("2*s0+1", kSymInt),
                              Arg(kInt, 5), Arg(kTensor, 1)};
  return tenon_graph_return(g, outputs, static_cast<int64_t>(std::size(outputs)), error) == 0 ? std::move(graph) : nullptr;
}

TEST_F(Seam, GraphsAreBuilt) {
  const auto is = [](const char* text, GraphPtr (*build)(char**)) {
    return [text, build] {
      char* error = nullptr;
      const GraphPtr g = build(&error);
      if (g == nullptr) return Told(false, error);
      const std::string printed = Taken(tenon_graph_print(g.get(), &error));
      const Disarmed disarmed;
      EXPECT_TRUE(printed.empty() || printed == text) << printed;
      return Told(!printed.empty(), error);
    };
  };
  EachAllocationFails("tenon_graph_*", is(kGraph, BuiltGraph));
  EachAllocationFails("tenon_graph_*, all", is(kWholeGraph, BuiltWholeGraph));
  EachAllocationFails("tenon_graph_parse", [] {
    char* error = nullptr;
    TenonGraph* g = ParseGraph(kWholeGraph, &error).release();
    const bool parsed = g != nullptr;
    tenon_graph_release(g);
    return Told(parsed, error);
  });
  const TenonTextCounts counts = tenon_text_counts();
  EXPECT_GT(counts.graphs_printed, 0);
  EXPECT_GT(counts.graphs_parsed, 0);
}

TEST_F(Seam, WhatIsWrongWithAGraphIsTold) {
  using Build = std::function<bool(TenonGraph*, char**)>;  // true: it was taken
  const std::vector<TenonMeta> dense = {Dense()}, twice = {Dense(), Dense()};
  TenonMeta ranked = Dense(), sizeless = Dense(), typeless = Dense(), tuple = Dense();
  TenonMeta negative = Dense(), huge = Dense(), unknown = Dense();
  const int64_t minus[] = {4, -8}, beyond[] = {4, INT64_MAX};
  const char* const s9[] = {"s9", nullptr, nullptr, nullptr, nullptr};
  ranked.ndim = -1, sizeless.sizes = nullptr, typeless.dtype = 999, tuple.dtype = tenon_dtype_from_name("token"), negative.sizes = minus;
  huge.sizes = beyond, unknown.expressions = s9;
  const TenonMeta odd = Meta(9), other = Meta(TENON_META_OTHER), none = Meta(TENON_META_NONE);
  std::vector<std::vector<TenonArg>> nested(80, std::vector<TenonArg>(1));
  for (size_t k = 1; k < nested.size(); ++k) nested[k][0] = List(nested[k - 1]);
  TenonArg null_list = Arg(kList), odd_dtype = Arg(kDtype);
  null_list.list_size = 3, odd_dtype.dtype = 999;
  const float data[32] = {};
  const auto input = [](const char* name, const TenonMeta* meta) -> Build {
    return [=](TenonGraph* g, char** e) { return tenon_graph_input(g, name, meta, e) >= 0; };
  };
  const auto node = [&](std::vector<TenonArg> args, std::vector<const char*> names = {"y"}, std::vector<TenonMeta> metas = {Dense()},
                        const char* op = "aten.neg.default", bool mutates = false) -> Build {
    return [=](TenonGraph* g, char** e) { return AddNode(g, op, args, names, metas, e, mutates) >= 0; };
  };
  const auto returns = [](TenonArg output) -> Build {
    return [=](TenonGraph* g, char** e) { return tenon_graph_return(g, &output, 1, e) == 0; };
  };
  const auto literal = [&](const TenonMeta* meta, const void* bytes, size_t size) -> Build {
    return [=](TenonGraph* g, char** e) { return tenon_graph_literal(g, "l", meta, bytes, size, e) >= 0; };
  };
  const auto symbol = [](const char* name, int64_t lower, int64_t upper) -> Build {
    return [=](TenonGraph* g, char** e) { return tenon_graph_symbol(g, name, lower, upper, 0, e) == 0; };
  };
  const struct {
    Build build;
    const char* told;
  } cases[] = {
      {symbol(nullptr, 0, 1), "wanted a name, got NULL"},
      {symbol("2x", 0, 1), "wanted a symbol's name, got '2x'"},
      {symbol("s0", 3, 2), "symbol s0 has an empty range"},
      {[&](TenonGraph* g, char** e) { return symbol("s0", 0, 9)(g, e) && symbol("s0", 0, 9)(g, e); }, "symbol s0 is declared twice"},
      {input(nullptr, &dense[0]), "wanted a name, got NULL"},
      {input("a b", &dense[0]), "wanted a value's name, of letters, digits, '_' and '.', got 'a b'"},
      {input("x", &dense[0]), "value %x is defined twice"},
      {input("y", nullptr), "wanted a meta, got NULL"},
      {input("y", &odd), "wanted a kind of meta from 0 to 3, got 9"},
      {input("y", &other), "wanted why a value is something other, got NULL"},
      {input("y", &ranked), "wanted sizes and strides, got -1 dimensions without"},
      {input("y", &sizeless), "wanted sizes and strides, got 2 dimensions without"},
      {input("y", &typeless), "wanted the number of a tensor's dtype, got 999"},
      {input("y", &tuple), "wanted the number of a tensor's dtype"},
      {input("y", &negative), "a size is negative: -8"},
      {input("y", &huge), "wanted a size that fits 62 bits, got 9223372036854775807"},
      {input("y", &unknown), "symbol s9 is not declared"},
      {[&](TenonGraph* g, char** e) { return tenon_graph_constant(g, "c", &none, e) >= 0; }, "a constant must be a tensor"},
      {[&](TenonGraph* g, char** e) { return tenon_graph_constant(g, nullptr, &none, e) >= 0; }, "wanted a name, got NULL"},
      {literal(&dense[0], data, 12), "wanted 128 bytes of a literal, got 12"},
      {literal(&dense[0], nullptr, 128), "wanted 128 bytes of a literal, got 0"},
      {literal(&negative, data, 128), "a literal's sizes must be numbers"},
      {literal(&none, data, 4), "a constant must be a tensor"},
      {[](TenonGraph* g, char** e) { return tenon_graph_node(g, nullptr, e) >= 0; }, "wanted a node with an operator, got NULL"},
      {node({Arg(kTensor, 0)}, {"y"}, dense, ""), "wanted an operator's overload, \"aten.add.Tensor\", got ''"},
      {node({Arg(kTensor, 0)}, {"y"}, dense, "aten neg"), "wanted an operator's overload"},
      {node({Arg(77)}), "wanted a kind of argument from 0 to 12, got 77"},
      {node({Arg(kTensor, 1)}), "wanted a value of the graph, which has 1, got number 1"},
      {node({Arg(kTensor, -1)}), "wanted a value of the graph, which has 1, got number -1"},
      {node({Text("a b", kLayout)}), "wanted a layout, device or memory format by torch's name, got 'a b'"},
      {node({Text(nullptr)}), "wanted an argument's text, got NULL"},
      {node({Text("s9", kSymInt)}), "symbol s9 is not declared"},
      {node({null_list}), "wanted a list of arguments, got NULL with 3 elements"},
      {node({odd_dtype}), "wanted the number of a tensor's dtype, got 999"},
      {node({List(nested.back())}), "lists nested too deeply"},
      {node({Arg(kTensor, 0)}, {"x"}), "value %x is defined twice"},
      {node({Arg(kTensor, 0)}, {"y", nullptr}, twice), "wanted a name, got NULL"},
      {node({Arg(kInt, 0)}, {"y"}, dense, "aten.copy_.default", true), "mutates its first tensor has one"},
      {node({Arg(kTensor, 0)}, {"y", "z"}, twice, "aten.copy_.default", true), "at most that as a result"},
      {returns(Arg(kFloat)), "wanted a value, none, a number or a SymInt to return, got 0.0"},
      {returns(Arg(kTensor, 1)), "wanted a value of the graph, which has 1, got number 1"},
      {returns(Text("s9", kSymInt)), "symbol s9 is not declared"},
      {[&](TenonGraph* g, char** e) { return returns(Arg(kTensor, 0))(g, e) && returns(Arg(kTensor, 0))(g, e); },
       "the graph has its return: nothing can be added to it"},
      {[&](TenonGraph* g, char** e) { return returns(Arg(kTensor, 0))(g, e) && input("z", &dense[0])(g, e); }, "the graph has its return"},
      {[](TenonGraph* g, char** e) { return tenon_graph_value(g, "q", e) >= 0; }, "unknown value %q"},
      {[](TenonGraph* g, char** e) { return Compile(g, {}, e) != nullptr; }, "wanted a graph with its return"},
  };
  for (const auto& c : cases) {
    const GraphPtr g(tenon_graph_new("g", nullptr));
    ASSERT_EQ(tenon_graph_input(g.get(), "x", &dense[0], nullptr), 0);
    char* error = nullptr;
    EXPECT_FALSE(c.build(g.get(), &error)) << "taken, wanted: " << c.told;
    const std::string told = Taken(error);
    EXPECT_NE(told.find(c.told), std::string::npos) << told << "\nwanted: " << c.told;
  }
  char* error = nullptr;
  EXPECT_EQ(tenon_graph_new(nullptr, &error), nullptr);
  EXPECT_EQ(Taken(std::exchange(error, nullptr)), "wanted a name, got NULL");
  EXPECT_EQ(ParseGraph("graph \"g\" {\n  %x = input f33[2]{1}\n", &error), nullptr);
  EXPECT_NE(Taken(std::exchange(error, nullptr)).find("line 2"), std::string::npos);
  EXPECT_EQ(Compile(nullptr, {}, &error), nullptr);
  EXPECT_EQ(Taken(std::exchange(error, nullptr)), "wanted a graph, got NULL");
  EXPECT_EQ(tenon_compile(Graph(), nullptr, 2, nullptr, 0, Host(), &error), nullptr);
  EXPECT_EQ(Taken(std::exchange(error, nullptr)), "options: wanted a list, got NULL with 2 elements");
  EXPECT_EQ(Compile(Graph(), {{nullptr, Arg(kInt, 1)}}, &error), nullptr);
  EXPECT_EQ(Taken(error), "options: wanted a name, got NULL");
}

TEST_F(Seam, TheSignatureSaysWhatWasCompiled) {
  for (const bool native : {true, false}) {
    const ExecutablePtr e = Compiled(native ? kQuick : kEager);
    ASSERT_NE(e, nullptr);
    const TenonSignature& s = *tenon_signature(e.get());
    EXPECT_EQ(s.size, sizeof(TenonSignature));
    EXPECT_EQ(s.native != 0, native) << s.reason;
    EXPECT_STREQ(s.name, "g");
    EXPECT_STREQ(s.reason, native ? "" : "wanted");
    ASSERT_EQ(s.num_inputs, 1);
    EXPECT_EQ(s.inputs[0].ndim, 2);
    EXPECT_EQ(s.inputs[0].sizes[1], 8);
    EXPECT_EQ(s.inputs[0].strides[0], 8);
    EXPECT_EQ(s.inputs[0].dtype, tenon_dtype_from_name("f32"));
    EXPECT_EQ(s.inputs[0].flags, TENON_INPUT_FRAMEWORK);  // as a whole, to kernels or operators
    ASSERT_EQ(s.num_outputs, 1);
    EXPECT_EQ(s.outputs[0].ndim, 2);
    EXPECT_EQ(s.num_kernels, native ? 1 : 0);
    EXPECT_EQ(s.planned_bytes, native ? 128 : 0);
    EXPECT_GT(s.num_phases, 0);
  }
}

// An extension built against another tenon_c.h is told so, not called.
TEST_F(Seam, HostsOfAnotherVersion) {
  const auto error_of = [](const TenonHost& host) {
    char* error = nullptr;
    const ExecutablePtr e(tenon_compile(Graph(), nullptr, 0, nullptr, 0, &host, &error));
    EXPECT_EQ(e, nullptr);
    return Taken(error);
  };
  TenonHost old = *Host();
  old.version = TENON_ABI_VERSION - 1;
  const std::string wanted = "the host speaks version " + std::to_string(TENON_ABI_VERSION - 1) + " of tenon_c.h, this library " +
                             std::to_string(TENON_ABI_VERSION) + ": rebuild the extension";
  EXPECT_NE(error_of(old).find(wanted), std::string::npos);
  TenonHost shorter = *Host();
  shorter.size = offsetof(TenonHost, spaces);
  EXPECT_NE(error_of(shorter).find("rebuild the extension"), std::string::npos);
}

TEST_F(Seam, WrongRequests) {
  const auto wrong = [](const Options& options) {
    return [&options] {
      char* error = nullptr;
      const ExecutablePtr e = Compile(Graph(), options, &error);
      return Told(e != nullptr, error);
    };
  };
  const std::vector<TenonArg> elements = {Arg(kInt, 1), Text("a")};
  const Options no_such = {{"no", List(elements)}}, of_another_type = {{"symbols", List(elements)}}, no_tier = {{"tier", Text("fast")}};
  EachAllocationFails("no such option", wrong(no_such), 1000, false);
  EachAllocationFails("an option of another type", wrong(of_another_type), 1000, false);
  EachAllocationFails("no tier", wrong(no_tier), 1000, false);
  EachAllocationFails("no graph", [] {
    char* error = nullptr;
    const GraphPtr g = ParseGraph("graph \"g\" {\n  %x = input f32[\n}", &error);
    return Told(g != nullptr, error);
  }, 1000, false);
  EachAllocationFails("no HLO", [] {
    char* error = nullptr;
    const HloPtr h = Parse("HloModule m\nENTRY e { ROOT x = f32[2] negate(y) }", &error);
    return Told(h != nullptr, error);
  }, 1000, false);
  EachAllocationFails("no report", [] {
    char* error = nullptr;
    char* page = tenon_report_html("{\"a\":[1]}", 9, &error);
    return Told(!Taken(page).empty(), error);
  }, 1000, false);
}

TEST_F(Seam, TextsOfAnExecutable) {
  const Options report = {{"compile_threads", Arg(kInt, 1)}, {"report", Text("module")}};
  for (const Options& options : {report, kEager}) {
    const ExecutablePtr e = Compiled(options);
    ASSERT_NE(e, nullptr);
    EachAllocationFails("tenon_executable_info", [&] { return ToldText(tenon_executable_info(e.get())); });
    EachAllocationFails("tenon_executable_text", [&] { return ToldText(tenon_executable_text(e.get())); });
    EachAllocationFails("tenon_executable_stats", [&] { return ToldText(tenon_executable_stats(e.get(), 1)); });
    EachAllocationFails("tenon_executable_report", [&] { return ToldText(tenon_executable_report(e.get())); }, 100);
  }
  EachAllocationFails("tenon_cache_stats", [] { return ToldText(tenon_cache_stats()); });
}

TEST_F(Seam, AReportsPage) {
  const HloPtr h = Parsed();
  char* error = nullptr;
  const std::string document = Taken(tenon_hlo_report(h.get(), nullptr, 0, &error));
  ASSERT_FALSE(document.empty()) << Taken(error);
  EachAllocationFails("tenon_report_html", [&] {
    char* failure = nullptr;
    const std::string page = Taken(tenon_report_html(document.data(), document.size(), &failure));
    return Told(page.find("</html>") != std::string::npos, failure);
  }, 100);
}

TEST_F(Seam, Runs) {
  Input in;
  for (const Options& options : {kQuick, kEager}) {
    const ExecutablePtr e = Compiled(options);
    ASSERT_NE(e, nullptr);
    for (const int profiling : {0, 1}) {
      tenon_set_profiling(profiling);
      EachAllocationFails("tenon_run", [&] { return RunGraph(e.get(), in, nullptr); });
      HostTensor* owned = NewTensor(in.tensor);
      owned->data = in.data;
      EachAllocationFails("tenon_run_owned", [&] {
        TenonTensor& t = in.tensor;
        const TenonTensor before = t;
        t.data = owned->data.data();
        const Outcome outcome = RunGraph(e.get(), in, owned);
        t = before;
        EXPECT_EQ(owned->references, 1) << "the reference that passed was given back";
        return outcome;
      });
      Host()->tensor_release(nullptr, owned);
    }
    tenon_set_profiling(0);
    // A frame that is made in the run: handles of their own, each of which runs once.
    EachAllocationFails("tenon_run, first", [&] {
      ExecutablePtr fresh;
      {
        const Disarmed disarmed;
        fresh = Compiled(kEagerAlone);
      }
      return RunGraph(fresh.get(), in, nullptr);
    });
    EachAllocationFails("tenon_output_sizes", [&] {
      int64_t sizes[2], strides[2];
      char* error = nullptr;
      const int code = tenon_output_sizes(e.get(), &in.tensor, 0, sizes, strides, &error);
      return Told(code == TENON_OK && sizes[1] == 8 && strides[0] == 8, error);
    });
    EachAllocationFails("tenon_check_inputs", [&] {
      char* error = nullptr;
      const int code = tenon_check_inputs(e.get(), &in.tensor, &error);
      return Told(code == TENON_OK, error);
    });
    TenonTensor other = in.tensor;
    other.dtype = tenon_dtype_from_name("f64");
    char* refused = nullptr;
    EXPECT_EQ(tenon_check_inputs(e.get(), &other, &refused), TENON_ERROR);
    EXPECT_NE(std::string(refused).find("dtype f64"), std::string::npos) << refused;
    tenon_string_free(refused);
    tenon_executable_retain(e.get());
    tenon_executable_release(e.get());
  }
}

TEST_F(Seam, Profiles) {
  const Input in;
  const ExecutablePtr e = Compiled({{"compile_threads", Arg(kInt, 1)}, {"name", Text("a_graph_with_a_long_name")}});
  ASSERT_NE(e, nullptr);
  char* error = nullptr;
  EXPECT_EQ(tenon_profile_stop(&error), nullptr);
  EXPECT_EQ(Taken(std::exchange(error, nullptr)), "no profile is being recorded");
  EXPECT_EQ(tenon_profile_start(-1, &error), 1);
  EXPECT_EQ(Taken(std::exchange(error, nullptr)), "a profile keeps 0 events or more");
  EachAllocationFails("tenon_profile_start", [] {
    char* told = nullptr;
    const bool started = tenon_profile_start(100, &told) == 0;
    const Outcome outcome = Told(started, told);
    const Disarmed disarmed;
    if (started) tenon_profile_release(tenon_profile_stop(nullptr));
    return outcome;
  });
  ASSERT_EQ(tenon_profile_start(1000, &error), 0);
  EXPECT_EQ(tenon_profile_start(1000, &error), 1);
  EXPECT_NE(Taken(std::exchange(error, nullptr)).find("already"), std::string::npos);
  EachAllocationFails("tenon_run, recorded", [&] { return RunGraph(e.get(), in, nullptr); });
  TenonProfile* profile = tenon_profile_stop(&error);
  ASSERT_NE(profile, nullptr) << Taken(error);
  EachAllocationFails("tenon_profile_stop", [&] {
    {
      const Disarmed disarmed;
      tenon_profile_release(std::exchange(profile, nullptr));
      (void)tenon_profile_start(1000, nullptr);  // one goes on where the last stop failed
      EXPECT_TRUE(RunGraph(e.get(), in, nullptr).done);
    }
    char* told = nullptr;
    profile = tenon_profile_stop(&told);
    return Told(profile != nullptr, told);
  });
  ASSERT_NE(profile, nullptr);
  EachAllocationFails("tenon_profile_json", [&] {
    char* told = nullptr;
    const std::string text = Taken(tenon_profile_json(profile, Host(), &told));
    return Told(text.find("a_graph_with_a_long_name") != std::string::npos, told);
  });
  EachAllocationFails("tenon_profile_table", [&] {
    char* told = nullptr;
    const std::string text = Taken(tenon_profile_table(profile, Host(), 0, &told));
    return Told(text.find("a_graph_with_a_long_name") != std::string::npos, told);
  });
  EachAllocationFails("tenon_profile_trace", [&] {
    char* told = nullptr;
    const std::string text = Taken(tenon_profile_trace(profile, &told));
    return Told(text.find("traceEvents") != std::string::npos, told);
  });
  tenon_profile_release(profile);
}

TEST_F(Seam, Modules) {
  EachAllocationFails("tenon_hlo_parse", [] {
    char* error = nullptr;
    const HloPtr h = Parse(kHlo, &error);
    return Told(h != nullptr, error);
  });
  const HloPtr h = Parsed();
  EachAllocationFails("tenon_hlo_verify", [&] {
    char* error = nullptr;
    const bool right = tenon_hlo_verify(h.get(), &error) == 0;
    return Told(right, error);
  });
  EachAllocationFails("tenon_hlo_print", [&] { return ToldText(tenon_hlo_print(h.get(), TENON_HLO_CANONICAL)); });
  EachAllocationFails("tenon_hlo_signature", [&] { return ToldText(tenon_hlo_signature(h.get())); });
  EachAllocationFails("tenon_hlo_cost", [&] {
    char* error = nullptr;
    const std::string cost = Taken(tenon_hlo_cost(h.get(), &error));
    return Told(!cost.empty(), error);
  });
  EachAllocationFails("tenon_hlo_report", [&] {
    char* error = nullptr;
    const std::string report = Taken(tenon_hlo_report(h.get(), nullptr, 0, &error));
    return Told(!report.empty(), error);
  }, 50);
}

TEST_F(Seam, PassesThatFailLeaveTheModuleAsItWas) {
  const HloPtr h = Parsed();
  const std::string before = Taken(tenon_hlo_print(h.get(), 0));
  for (int64_t n = 1;; n += n < 200 ? 1 : n / 20) {
    char* error = nullptr;
    seam::FailAllocation(n, false);
    const int changed = tenon_hlo_run_passes(h.get(), "", "", &error);
    seam::StopFailing();
    const std::string told = Taken(error);
    if (changed == 1) break;
    ASSERT_EQ(changed, -1);
    EXPECT_FALSE(told.empty());
    ASSERT_EQ(Taken(tenon_hlo_print(h.get(), 0)), before) << "allocation " << n;
  }
  EXPECT_NE(Taken(tenon_hlo_print(h.get(), 0)), before);
}

TEST_F(Seam, ModulesRun) {
  const Input in;
  const auto result_is_right = [](TenonHloResult* result, char* error) {
    const bool done = result != nullptr;
    if (done) {
      EXPECT_EQ(tenon_hlo_result_count(result), 3);
      EXPECT_EQ(static_cast<const float*>(tenon_hlo_result_leaves(result)[1].data)[0], 6 * 36.0f);
      tenon_hlo_result_release(result);
    }
    return Told(done, error);
  };
  const HloPtr h = Parsed();
  EachAllocationFails("tenon_hlo_evaluate", [&] {
    char* error = nullptr;
    TenonHloResult* const result = tenon_hlo_evaluate(h.get(), &in.tensor, 1, &error);
    return result_is_right(result, error);
  });
  EachAllocationFails("tenon_hlo_compile", [&] {
    HloPtr fresh;
    {
      const Disarmed disarmed;
      fresh = Parsed();
    }
    char* error = nullptr;
    const bool done = tenon_hlo_compile(fresh.get(), kQuick.data(), 1, &error) == 0;
    return Told(done, error);
  }, 100);
  EachAllocationFails("tenon_hlo_run", [&] {
    char* error = nullptr;
    TenonHloResult* const result = tenon_hlo_run(h.get(), &in.tensor, 1, &error);
    return result_is_right(result, error);
  });
}

// The input is frozen: all is computed once, and a run takes what came of it behind its input.
TEST_F(Seam, RunsWhatIsFrozen) {
  const Input in;
  const std::vector<TenonArg> first = {Arg(kInt, 0)}, text = {Text("x")};
  const ExecutablePtr e = Compiled({{"compile_threads", Arg(kInt, 1)}, {"frozen", List(first)}});
  ASSERT_NE(e, nullptr);
  ASSERT_EQ(tenon_signature(e.get())->num_inputs, 1);
  TenonExecutable* once = tenon_executable_once(e.get());
  ASSERT_NE(once, nullptr);
  ASSERT_EQ(tenon_signature(once)->num_outputs, 1);
  EXPECT_EQ(tenon_executable_once(once), nullptr);
  EachAllocationFails("tenon_run, frozen", [&] {
    float value[32] = {}, out[32] = {};
    TenonTensor inputs[2] = {in.tensor, in.tensor}, output = in.tensor;
    inputs[1].data = value;
    output.data = out;
    char* error = nullptr;
    int code = tenon_run(once, inputs, &inputs[1], &error);
    if (code == TENON_OK) code = tenon_run(e.get(), inputs, &output, &error);
    const Disarmed disarmed;
    for (int k = 0; k < 32 && code == TENON_OK; ++k) EXPECT_EQ(out[k], -in.data[k] * in.data[k]) << k;
    return Told(code == TENON_OK, error);
  });
  const Options frozen = {{"compile_threads", Arg(kInt, 1)}, {"cache", Arg(kBool, 0)}, {"frozen", List(first)}};
  EachAllocationFails("tenon_compile, frozen", [&] {
    char* error = nullptr;
    const ExecutablePtr made = Compile(Graph(), frozen, &error);
    return Told(made != nullptr, error);
  }, 150);
  char* error = nullptr;
  EXPECT_EQ(Compile(Graph(), {{"frozen", List(text)}}, &error), nullptr);
  EXPECT_NE(Taken(error).find("frozen"), std::string::npos);
}

TEST_F(Seam, TheRest) {
  EachAllocationFails("tenon_hlo_register_custom_call", [] {
    char* error = nullptr;
    const auto call = [](void*, const TenonHloCall*, char*) { return 0; };
    const bool done = tenon_hlo_register_custom_call("seam.a_target_with_a_long_name", call, nullptr, &error) == 0;
    return Told(done, error);
  });
  EachAllocationFails("tenon_hlo_custom_calls", [] {
    const std::string names = Taken(tenon_hlo_custom_calls());
    return Outcome{names.find("seam.a_target") != std::string::npos, "no text"};
  });
  char* error = nullptr;
  EXPECT_EQ(tenon_hlo_register_custom_call("seam.a_target_with_a_long_name", nullptr, nullptr, &error), 0) << Taken(error);
  EachAllocationFails("tenon_hlo_set_lapack", [] {
    char* told = nullptr;
    const bool done = tenon_hlo_set_lapack("/a/path/that/is/too/long/for/a/short/string.so", &told) == 0;
    return Told(done, told);
  });
  EachAllocationFails("those that cannot fail", [] {
    tenon_hlo_set_interrupted(nullptr);
    return Outcome{tenon_dtype_from_name("bf16") >= 0 && std::strcmp(tenon_dtype_name(tenon_dtype_from_name("bf16")), "bf16") == 0 &&
                   tenon_dtype_from_name("no type") == -1 && std::strlen(tenon_build_id()) > 0};
  });
}

// A new entry has a line above, or this fails.
TEST(SeamEntries, AllAreTried) {
  const auto read = [](const char* path) {
    std::stringstream text;
    text << std::ifstream(std::string(TENON_SOURCE_DIR) + "/" + path).rdbuf();
    return text.str();
  };
  const std::string header = read("runtime/tenon_c.h"), here = read("tests/seam/seam_test.cc");
  int entries = 0;
  for (size_t at = header.find("TENON_API "); at != std::string::npos; at = header.find("TENON_API ", at + 1)) {
    const size_t open = header.find('(', at), name = header.find(" tenon_", at) + 1, starred = header.find("*tenon_", at) + 1;
    if (header.compare(at, 11, "TENON_API _") == 0) continue;  // its own definition
    const size_t begin = std::min(name == 0 ? open : name, starred == 0 ? open : starred);
    ASSERT_LT(begin, open) << header.substr(at, 80);
    const std::string entry = header.substr(begin, open - begin);
    EXPECT_NE(here.find(entry + "("), std::string::npos) << entry << " is not tried";
    ++entries;
  }
  EXPECT_GE(entries, 49);
}

}  // namespace
