// Sorts by plain orders, topk and searchsorted: the pass and the library against the evaluator's definition; one, two and three
// threads against std::stable_sort.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "backends/driver/literal_executable.h"
#include "hlo/eval/evaluator.h"
#include "hlo/library/call.h"
#include "hlo/library/sort_order.h"
#include "hlo/text/text.h"
#include "hlo/tolerance.h"
#include "passes/pipeline.h"
#include "tests/backends/hlo_cases.h"

namespace tenon {
namespace {

using PT = PrimitiveType;

int Calls(const Module& module, std::string_view target) {
  int calls = 0;
  for (const Computation* c : module.computations()) {
    for (const Instruction* op : c->instructions()) calls += op->opcode() == Opcode::kCustomCall && op->custom_call_target() == target;
  }
  return calls;
}

// The pass alone says `calls` of `target`; the whole program has the evaluator's bits.
void ExpectDefinition(const std::string& text, std::string_view target, int calls, const HloCase& values, uint64_t seed) {
  SCOPED_TRACE(text);
  auto module = ParseModule(text);
  ASSERT_TRUE(module.ok()) << module.status();
  std::vector<Literal> args;
  for (const Instruction* p : (*module)->entry()->parameters()) args.push_back(RandomLiteral(p->shape(), values, seed * 10 + args.size()));
  const absl::StatusOr<Literal> evaluated = Evaluate(**module, args);
  ASSERT_TRUE(evaluated.ok()) << evaluated.status();
  auto executable = LiteralExecutable::Compile(**module, {.excess_precision = false, .verify_passes = true});
  ASSERT_TRUE(executable.ok()) << executable.status();
  const auto got = (*executable)->Run(args);
  ASSERT_TRUE(got.ok()) << got.status();
  const std::vector<Literal> want = Leaves(*evaluated);
  ASSERT_EQ(got->size(), want.size());
  for (size_t k = 0; k < want.size(); ++k) {
    const LiteralDifference d = CompareLiterals((*got)[k], want[k], ToleranceRule::Exact());
    EXPECT_TRUE(d.within) << "result " << k << ": " << d.what;
  }
  PassContext context;
  ASSERT_TRUE(RunPipeline(**module, context, {.passes = {"canonicalize", "library-sorts"}}).ok());
  EXPECT_EQ(Calls(**module, target), calls);
}

// "a before b" of keys `a` and `b`, and the instructions in front of it.
std::string Comparison(bool is_float, int order) {
  switch (is_float ? order : order % 2) {
    case 0: return is_float ? " l = pred[] compare(a, b), direction=LT\n n = pred[] compare(b, b), direction=NE\n"
                              " m = pred[] compare(a, a), direction=EQ\n c = pred[] and(m, n)\n ROOT r = pred[] or(c, l)\n"
                            : " ROOT r = pred[] compare(a, b), direction=LT\n";
    case 1: return is_float ? " l = pred[] compare(a, b), direction=GT\n n = pred[] compare(a, a), direction=NE\n"
                              " m = pred[] compare(b, b), direction=NE\n o = pred[] not(m)\n c = pred[] and(n, o)\n"
                              " ROOT r = pred[] or(l, c)\n"
                            : " ROOT r = pred[] compare(a, b), direction=GT\n";
    case 2: return " ROOT r = pred[] compare(a, b), direction=LT, type=TOTALORDER\n";
    default: return " ROOT r = pred[] compare(b, a), direction=LT, type=TOTALORDER\n";
  }
}

TEST(LibrarySorts, AreTheEvaluators) {
  const std::vector<std::string> types = {"f32", "f64", "f16", "bf16", "s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"};
  const std::vector<int64_t> lengths = {1, 2, 31, 127, 128, 129, 400, 1500};
  for (uint64_t seed = 0; seed < 72; ++seed) {
    std::mt19937_64 random(seed);
    auto one_of = [&](const auto& v) { return v[random() % std::size(v)]; };
    const std::string type = types[seed % types.size()];
    const int order = static_cast<int>(seed / types.size()) % 4;
    std::vector<int64_t> dims = {one_of(lengths)};
    int64_t dimension = 0;
    if (random() % 2 == 0) {
      dimension = static_cast<int64_t>(random() % 2);
      dims.insert(dims.begin() + static_cast<int64_t>(dimension == 0), 3);
    }
    const std::string d = absl::StrCat("[", absl::StrJoin(dims, ","), "]"), x = type + d;
    const bool positions = random() % 3 != 0, payload = random() % 2 == 0;
    std::string parameters = absl::StrCat(" x = ", x, " parameter(0)\n"), args = "x", less;
    std::vector<std::string> shapes = {x};
    less = absl::StrCat(" a = ", type, "[] parameter(0)\n b = ", type, "[] parameter(1)\n");
    auto column = [&](const std::string& t) {
      for (int side = 0; side < 2; ++side)
        absl::StrAppend(&less, " u", 2 * shapes.size() + side, " = ", t, "[] parameter(", 2 * shapes.size() + side, ")\n");
      shapes.push_back(t + d);
    };
    if (positions) {
      const std::string t = random() % 2 == 0 ? "s64" : "s32";
      absl::StrAppend(&parameters, " i = ", t, d, " iota(), iota_dimension=", dimension, "\n");
      args += ", i";
      column(t);
    }
    if (payload) {
      const std::string t = one_of(std::vector<std::string>{"c128", "f64", "u8", "bf16", "s32"});
      absl::StrAppend(&parameters, " p = ", t, d, " parameter(1)\n");
      args += ", p";
      column(t);
    }
    const std::string result = shapes.size() == 1 ? x : absl::StrCat("(", absl::StrJoin(shapes, ", "), ")");
    ExpectDefinition(absl::StrCat("HloModule m\nless {\n", less, Comparison(type[0] == 'f' || type[0] == 'b', order), "}\nENTRY e {\n",
                                  parameters, " ROOT s = ", result, " sort(", args, "), dimensions={", dimension, "}, to_apply=less\n}\n"),
                     "tenon.sort", 1, {.specials = random() % 2 == 0, .has_range = true, .low = -9, .high = 90}, seed);
  }
}

TEST(LibrarySorts, TopKIsTheEvaluators) {
  const std::vector<std::string> types = {"f32", "f64", "f16", "bf16", "s8", "u8", "s32", "u64"};
  const std::vector<std::pair<int64_t, int64_t>> sizes = {{1, 1}, {8, 2}, {100, 100}, {129, 1}, {500, 7}, {3000, 10}, {3000, 40},
                                                          {3000, 700}};
  for (uint64_t seed = 0; seed < 48; ++seed) {
    const std::string& type = types[seed % types.size()];
    const auto [n, k] = sizes[(seed / 3) % sizes.size()];
    const HloCase values = {.specials = seed % 2 == 0, .has_range = true, .low = -100, .high = seed % 5 == 0 ? -99 : 100};
    ExpectDefinition(absl::StrCat("HloModule m\nENTRY e {\n x = ", type, "[5,", n, "] parameter(0)\n ROOT t = (", type, "[5,",
                                  k, "], s32[5,", k,
                                  "]) topk(x), k=", k, ", largest=", seed % 4 < 2 ? "true" : "false", "\n}\n"),
                     "tenon.topk", 1, values, seed);
  }
}

// ---- threads -------------------------------------------------------------------------------------------------------------

// Pieces at once, the last one started first.
void OnThreads(void*, int64_t begin, int64_t end, int64_t, void (*fn)(void*, int64_t, int64_t), void* arg) {
  std::vector<std::thread> threads;
  for (int64_t k = end; k-- > begin;) threads.emplace_back([=] { fn(arg, k, k + 1); });
  for (std::thread& t : threads) t.join();
}

std::vector<Literal> Call(const library::Signature& signature, const std::vector<Literal>& args, int threads) {
  EXPECT_TRUE(library::CheckSignature(signature).ok()) << library::CheckSignature(signature);
  std::vector<Literal> results;
  std::vector<const void*> from;
  std::vector<void*> to;
  for (const Literal& l : args) from.push_back(l.bytes());
  for (const Shape& s : signature.results) results.emplace_back(s);
  for (Literal& l : results) to.push_back(l.mutable_bytes());
  std::vector<char> scratch(static_cast<size_t>(library::ScratchBytes(signature)) + 64, '\x5a');
  char* aligned = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) % 64;
  library::RunState state;
  const absl::Status status =
      library::FindFunction(signature.function)->run({signature, from, to, aligned, state, {threads, nullptr, OnThreads}});
  EXPECT_TRUE(status.ok()) << status;
  return results;
}

Shape Array(PT type, std::vector<int64_t> dims) { return Shape::Array(type, std::move(dims)); }

TEST(LibrarySorts, ThreadsLeaveNoTrace) {
  for (const std::vector<int64_t>& dims : {std::vector<int64_t>{300'001}, {3, 140'000}, {40, 3'000}, {2'000, 9}}) {
    for (const PT type : {PT::kF32, PT::kS64}) {
      const Shape x = Array(type, dims), at = Array(PT::kS64, dims);
      // With zeros of both signs and NaN for f32; ties for s64.
      const std::vector<Literal> args = {RandomLiteral(x, {.specials = true, .has_range = true, .low = -4000, .high = 4000}, 7)};
      const int64_t n = dims.back(), rows = x.num_elements_constant() / n;
      for (const bool descending : {false, true}) {
        library::Signature s{"sort", {}, {x}, {x, at}};
        for (const auto& [name, value] : std::vector<std::pair<const char*, int64_t>>{
                 {"key", 0}, {"dimension", x.rank() - 1}, {"descending", descending}, {"nan_first", descending}, {"total", 0},
                 {"positions", 2},
                 {"hidden_key", 0}})
          s.attributes.Set(name, value);
        Literal want(at);
        for (int64_t r = 0; r < rows; ++r) {
          std::vector<int64_t> order(static_cast<size_t>(n));
          std::iota(order.begin(), order.end(), 0);
          std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) {
            if (type == PT::kS64) {
              const int64_t a = args[0].GetAsInt64(r * n + i), b = args[0].GetAsInt64(r * n + j);
              return descending ? a > b : a < b;
            }
            const double a = args[0].GetAsDouble(r * n + i), b = args[0].GetAsDouble(r * n + j);
            return descending ? a > b || (a != a && b == b) : a < b || (b != b && a == a);
          });
          for (int64_t k = 0; k < n; ++k) want.SetFromInt64(r * n + k, order[static_cast<size_t>(k)]);
        }
        for (const int threads : {1, 2, 3}) {
          SCOPED_TRACE(absl::StrCat(x.ToString(), descending ? " descending, " : " ascending, ", threads));
          const std::vector<Literal> got = Call(s, args, threads);
          ASSERT_EQ(std::memcmp(got[1].bytes(), want.bytes(), want.size_bytes()), 0);
          const int64_t width = ByteWidth(type);
          for (int64_t k = 0; k < rows * n; ++k) {
            const std::byte* from = args[0].bytes() + (k / n * n + want.GetAsInt64(k)) * width;
            ASSERT_EQ(std::memcmp(got[0].bytes() + k * width, from, static_cast<size_t>(width)), 0) << k;
          }
        }
      }
    }
  }
}

TEST(LibrarySorts, TopKThreadsLeaveNoTrace) {
  for (const auto& [dims, k] : std::vector<std::pair<std::vector<int64_t>, int64_t>>{{{9, 20'000}, 50}, {{150'000}, 90'000},
                                                                                        {{150'000}, 20}}) {
    std::vector<int64_t> few = dims;
    few.back() = k;
    const Shape x = Array(PT::kF32, dims);
    library::Signature s{"topk", {}, {x}, {Array(PT::kF32, few), Array(PT::kS32, few)}};
    s.attributes.Set("largest", int64_t{1});
    const std::vector<Literal> args = {RandomLiteral(x, {.specials = true}, 11)};
    const std::vector<Literal> one = Call(s, args, 1);
    for (const int threads : {2, 3}) {
      const std::vector<Literal> got = Call(s, args, threads);
      for (size_t i = 0; i < 2; ++i) EXPECT_EQ(std::memcmp(got[i].bytes(), one[i].bytes(), one[i].size_bytes()), 0);
    }
  }
}

// Rows in any order: rising, falling, of one value, of two, random, of little but NaN, of zeros of both signs.
TEST(LibrarySorts, TopKOfAnyRowIsTheSortedRowsBeginning) {
  const auto nan = std::nan("");
  const std::vector<std::function<double(int64_t i, int64_t n, uint64_t r)>> makers = {
      [](int64_t i, int64_t, uint64_t) { return static_cast<double>(i / 3); },
      [](int64_t i, int64_t n, uint64_t) { return static_cast<double>((n - i) / 3); },
      [](int64_t, int64_t, uint64_t) { return 7.0; },
      [](int64_t i, int64_t n, uint64_t) { return i < n / 2 ? 1.0 : 2.0; },
      [](int64_t, int64_t, uint64_t r) { return static_cast<double>(r % 100'000); },
      [nan](int64_t, int64_t, uint64_t r) { return r % 100 == 0 ? static_cast<double>(r % 7) : nan; },
      [](int64_t, int64_t, uint64_t r) { return r % 2 == 0 ? -0.0 : 0.0; }};
  std::mt19937_64 random(5);
  for (const PT type : {PT::kF32, PT::kF64, PT::kBF16, PT::kS32, PT::kS64, PT::kU8}) {
    for (const auto& [n, k, skip] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{{70, 1, 0}, {1'000, 9, 0}, {6'007, 50, 0},
             {140'001, 33, 0}, {70, 30, 0}, {1'000, 333, 3}, {6'007, 3'001, 0}, {64, 1, 31}, {65, 1, 64}, {1'000, 1, 99}, {6'007, 1, 3'003},
             {6'007, 1, 11}, {140'001, 1, 70'000}}) {
      for (size_t m = 0; m < (IsFloat(type) ? makers.size() : 5); ++m) {
        Literal x(Array(type, {n}));
        for (int64_t i = 0; i < n; ++i) {
          const double value = makers[m](i, n, random());
          if (IsFloat(type)) x.SetFromDouble(i, value);
          else x.SetFromInt64(i, static_cast<int64_t>(value) % (type == PT::kU8 ? 256 : 1 << 30));
        }
        for (const bool largest : {false, true}) {
          std::vector<double> keys(static_cast<size_t>(n));
          for (int64_t i = 0; i < n; ++i) {
            const double value = x.GetAsDouble(i) * (largest ? -1 : 1);
            keys[static_cast<size_t>(i)] = value == value ? value : (largest ? -INFINITY : INFINITY);
          }
          std::vector<int64_t> order(keys.size());
          std::iota(order.begin(), order.end(), 0);
          std::stable_sort(order.begin(), order.end(),
                           [&](int64_t i, int64_t j) { return keys[static_cast<size_t>(i)] < keys[static_cast<size_t>(j)]; });
          library::Signature s{"topk", {}, {x.shape()}, {Array(type, {k}), Array(PT::kS64, {k})}};
          s.attributes.Set("largest", int64_t{largest});
          s.attributes.Set("skip", int64_t{skip});
          for (const int threads : {1, 3}) {
            SCOPED_TRACE(absl::StrCat(x.shape().ToString(), " of kind ", m, ", k ", k, " behind ", skip,
                                      largest ? " largest, " : " smallest, ", threads));
            const std::vector<Literal> got = Call(s, {x}, threads);
            for (int64_t i = 0; i < k; ++i) {
              const int64_t at = order[static_cast<size_t>(skip + i)], width = ByteWidth(type);
              ASSERT_EQ(got[1].GetAsInt64(i), at) << i;
              ASSERT_EQ(std::memcmp(got[0].bytes() + i * width, x.bytes() + at * width, static_cast<size_t>(width)), 0) << i;
            }
          }
        }
      }
    }
  }
}

TEST(LibrarySorts, SearchesAsBinarySearchesDo) {
  const double nan = std::nan("");
  for (const int64_t count : {0, 1, 5, 40'000}) {
    for (const bool right : {false, true}) {
      const Shape row = Array(PT::kF64, {6}), values = Array(PT::kF64, {count});
      Literal sorted(row), queries(values);
      const double steps[] = {-3, -1, -1, 0, 2, nan};
      for (int64_t k = 0; k < 6; ++k) sorted.SetFromDouble(k, steps[k]);
      const double asked[] = {-4, -3, -1, -0.0, 1, 2, 3, nan};
      for (int64_t k = 0; k < count; ++k) queries.SetFromDouble(k, asked[k % 8]);
      library::Signature s{"searchsorted", {}, {row, values}, {Array(PT::kS32, {count})}};
      s.attributes.Set("right", int64_t{right});
      // A NaN is never "not below": whoever comes to ask it goes on behind it.
      const int64_t want_left[] = {0, 0, 1, 3, 6, 6, 6, 6}, want_right[] = {0, 1, 3, 6, 6, 6, 6, 6};
      for (const int threads : {1, 3}) {
        const std::vector<Literal> got = Call(s, {sorted, queries}, threads);
        for (int64_t k = 0; k < count; ++k) {
          const int64_t* const wants = right ? want_right : want_left;  // GCC 12's UBSan forgets an array that is chosen in place
          const int64_t want = wants[k % 8];
          ASSERT_EQ(got[0].GetAsInt64(k), want) << "right " << right << ", " << asked[k % 8];
        }
      }
    }
  }
}

// The steps of a binary search, of rows that are sorted or not, with NaNs in them or not.
template <typename T>
void ExpectStepsOfBinarySearch(PT type) {
  std::mt19937_64 random(3);
  const std::vector<std::array<int64_t, 3>> sizes = {{1, 1, 40}, {1, 1'000, 333}, {1, 1'024, 64}, {3, 37, 50}, {4, 9, 7}};
  constexpr int64_t kLowest = std::is_signed_v<T> ? -5 : 0;
  for (const auto& [rows, n, count] : sizes) {
    for (const bool sorted : {true, false}) {
      Literal row(Array(type, {rows, n})), values(Array(type, {rows, count}));
      T *in = reinterpret_cast<T*>(row.mutable_bytes()), *asked = reinterpret_cast<T*>(values.mutable_bytes());
      for (int64_t i = 0; i < rows * n; ++i) in[i] = static_cast<T>(static_cast<int64_t>(random() % 120));
      for (int64_t i = 0; i < rows * count; ++i) asked[i] = static_cast<T>(static_cast<int64_t>(random() % 130) + kLowest);
      for (int64_t r = 0; sorted && r < rows; ++r) std::sort(in + r * n, in + (r + 1) * n);
      if constexpr (std::is_floating_point_v<T>) {
        for (int64_t i = 0; i < rows; ++i) in[(i + 1) * n - 1] = asked[i * count + 3] = std::numeric_limits<T>::quiet_NaN();
      }
      for (const bool right : {false, true}) {
        library::Signature s{"searchsorted", {}, {row.shape(), values.shape()}, {Array(PT::kS64, {rows, count})}};
        s.attributes.Set("right", int64_t{right});
        for (const int threads : {1, 3}) {
          const std::vector<Literal> got = Call(s, {row, values}, threads);
          for (int64_t i = 0; i < rows * count; ++i) {
            const T* x = in + i / count * n;
            int64_t begin = 0, end = n;
            while (begin < end) {
              const int64_t middle = begin + (end - begin) / 2;
              if (right ? !(x[middle] > asked[i]) : !(x[middle] >= asked[i])) begin = middle + 1;
              else end = middle;
            }
            ASSERT_EQ(got[0].GetAsInt64(i), begin) << rows << " rows of " << n << ", value " << i << ", right " << right;
          }
        }
      }
    }
  }
}

TEST(LibrarySorts, SearchesSideBySideTakeTheSameSteps) {
  ExpectStepsOfBinarySearch<float>(PT::kF32);
  ExpectStepsOfBinarySearch<double>(PT::kF64);
  ExpectStepsOfBinarySearch<int32_t>(PT::kS32);
  ExpectStepsOfBinarySearch<int64_t>(PT::kS64);
  ExpectStepsOfBinarySearch<uint8_t>(PT::kU8);
}

TEST(LibrarySorts, SignaturesThatDoNotFitAreRefused) {
  const Shape x = Array(PT::kF32, {4, 5}), at = Array(PT::kS64, {4, 5});
  struct Case {
    const char* what;
    library::Signature signature;
    std::vector<std::pair<const char*, int64_t>> attributes;
  };
  const std::vector<Case> cases = {
      {"dimension", {"sort", {}, {x}, {x}}, {{"dimension", 2}}},
      {"key among the operands", {"sort", {}, {x}, {x}}, {{"key", 1}}},
      {"result for each operand", {"sort", {}, {x, at}, {x}}, {}},
      {"result for each operand", {"sort", {}, {x}, {x, at}}, {}},
      {"positions among them", {"sort", {}, {x}, {x}}, {{"positions", 2}}},
      {"32 or 64 bits", {"sort", {}, {x}, {x, x}}, {{"positions", 2}}},
      {"same sizes", {"sort", {}, {x}, {Array(PT::kF32, {4})}}, {}},
      {"a key of integers", {"sort", {}, {Array(PT::kC64, {4})}, {Array(PT::kC64, {4})}}, {}},
      {"at most as many", {"topk", {}, {x}, {Array(PT::kF32, {4, 6}), Array(PT::kS32, {4, 6})}}, {}},
      {"at most as many", {"topk", {}, {x}, {Array(PT::kF32, {4, 1}), Array(PT::kS32, {4, 1})}}, {{"skip", 5}}},
      {"at most as many", {"topk", {}, {x}, {Array(PT::kF32, {4, 1}), Array(PT::kS32, {4, 1})}}, {{"skip", -1}}},
      {"in as many rows", {"topk", {}, {x}, {Array(PT::kF32, {3, 2}), Array(PT::kS32, {3, 2})}}, {}},
      {"s32 or s64", {"topk", {}, {x}, {Array(PT::kF32, {4, 2}), Array(PT::kU8, {4, 2})}}, {}},
      {"as many rows", {"searchsorted", {}, {x, Array(PT::kF32, {3, 5})}, {Array(PT::kS64, {3, 5})}}, {}},
      {"integers, f32 or f64", {"searchsorted", {}, {x, at}, {at}}, {}},
      {"a sorter", {"searchsorted", {}, {x, x, Array(PT::kS32, {4, 5})}, {at}}, {}},
  };
  for (const Case& c : cases) {
    library::Signature s = c.signature;
    for (const auto& [name, value] : c.attributes) s.attributes.Set(name, value);
    const absl::Status status = library::CheckSignature(s);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << library::ToString(s);
    EXPECT_NE(std::string(status.message()).find(c.what), std::string::npos) << status;
  }
}

}  // namespace
}  // namespace tenon
