// Every element type in generated kernels: conversions between all pairs, arithmetic on all values of
// the narrow types, complex arithmetic on special values. Bits equal to the evaluator's, any NaN for
// a NaN.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "hlo/eval/evaluator.h"
#include "hlo/numeric_types.h"
#include "hlo/text/text.h"
#include "hlo/tolerance.h"
#include "tests/backends/kernel_runner.h"

namespace tenon {
namespace {

std::vector<PrimitiveType> AllTypes() {
  std::vector<PrimitiveType> types;
#define TENON_TYPE(e, ...) \
  if (IsArrayType(PrimitiveType::e)) types.push_back(PrimitiveType::e);
#include "hlo/types.def"
  return types;
}

std::string Name(PrimitiveType type) { return std::string(PrimitiveTypeName(type)); }

ToleranceRule Exact() {
  ToleranceRule rule;
  rule.zero_signs = true;
  return rule;
}

// Runs `text` on every instruction set and compares with the evaluator.
void ExpectEqual(const std::string& text, absl::Span<const Literal> args,
                 const std::vector<std::string>& isas, ToleranceRule rule = Exact()) {
  absl::StatusOr<std::unique_ptr<Module>> module = ParseModule(text, {});
  ASSERT_TRUE(module.ok()) << module.status() << "\n" << text;
  KernelRequest request = DenseRequest(WrapEntryAsFusion(**module));
  const Computation* entry = request.fusion->fused_computation();
  absl::StatusOr<Literal> want = Evaluate(*entry, args);
  ASSERT_TRUE(want.ok()) << want.status();
  const bool tuple = want->shape().is_tuple();
  for (const std::string& isa : isas) {
    absl::StatusOr<KernelRunner> runner =
        KernelRunner::Make(request, {.isa = isa, .excess_precision = false});
    ASSERT_TRUE(runner.ok()) << runner.status();
    absl::StatusOr<std::vector<Literal>> got = runner->Run(args);
    ASSERT_TRUE(got.ok()) << got.status();
    for (size_t i = 0; i < got->size(); ++i) {
      const Instruction* root =
          tuple ? entry->root()->operand(static_cast<int64_t>(i)) : entry->root();
      const Literal& w = tuple ? want->elements()[i] : *want;
      LiteralDifference d = CompareLiterals((*got)[i], w, rule);
      std::string operands;
      if (!d.within && w.shape().rank() == 1) {
        for (const Instruction* o : root->operands()) {
          if (o->opcode() != Opcode::kParameter) continue;
          const std::complex<double> v =
              args[static_cast<size_t>(o->parameter_number())].GetAsComplex(d.index[0]);
          absl::StrAppend(&operands, " ", v.real(), "+", v.imag(), "i");
        }
      }
      EXPECT_TRUE(d.within) << isa << ": " << d.differing << " wrong: " << d.what << " of"
                            << operands << " in " << root->ToString();
    }
  }
}

// Elementwise results of parameters x, y, ... of one length.
std::string ModuleOf(absl::Span<const PrimitiveType> params, int64_t n,
                     absl::Span<const std::pair<PrimitiveType, std::string>> results) {
  auto array = [n](PrimitiveType t) { return absl::StrCat(Name(t), "[", n, "]"); };
  std::string text = "HloModule m\nENTRY e {\n";
  for (size_t i = 0; i < params.size(); ++i)
    absl::StrAppend(&text, "  p", i, " = ", array(params[i]), " parameter(", i, ")\n");
  std::vector<std::string> names, shapes;
  for (const auto& [type, expression] : results) {
    names.push_back(absl::StrCat("r", names.size()));
    shapes.push_back(array(type));
    absl::StrAppend(&text, "  ", names.back(), " = ", shapes.back(), " ", expression, "\n");
  }
  return absl::StrCat(text, "  ROOT t = (", absl::StrJoin(shapes, ", "), ") tuple(",
                      absl::StrJoin(names, ", "), ")\n}\n");
}

// The numbers at which something changes for some type: every value of every type of at most 16 bits,
// the middles between neighbouring values of the narrow floats, and the neighbours of all of them.
const std::vector<double>& Numbers() {
  static const std::vector<double>* numbers = [] {
    auto* all = new std::vector<double>;
    auto with_neighbours = [all](double v) {
      const float f = static_cast<float>(v);
      for (double x : {v, std::nextafter(v, -1e300), std::nextafter(v, 1e300),
                       double{std::nextafter(f, -3e38f)}, double{std::nextafter(f, 3e38f)}})
        all->push_back(x);
    };
    for (PrimitiveType type : AllTypes()) {
      if (!IsFloat(type) || BitWidth(type) > 8) continue;
      std::vector<double> values;
      for (int code = 0; code < 256; ++code) {
        Literal l(Shape::Array(type, {1}));
        *l.mutable_bytes() = static_cast<std::byte>(code);
        if (std::isfinite(l.GetAsDouble(0))) values.push_back(l.GetAsDouble(0));
      }
      std::sort(values.begin(), values.end());
      for (size_t i = 0; i < values.size(); ++i) {
        with_neighbours(values[i]);
        if (i > 0) with_neighbours((values[i - 1] + values[i]) / 2);
      }
      with_neighbours(values.back() + (values.back() - values[values.size() - 2]) / 2);
    }
    for (int bits = 0; bits <= 64; ++bits) {
      for (double v : {std::ldexp(1.0, bits), std::ldexp(1.5, bits), std::ldexp(1.25, bits)}) {
        for (double d : {-1.0, -0.5, 0.0, 0.5, 1.0}) {
          all->push_back(v + d);
          all->push_back(-v + d);
        }
      }
    }
    const double inf = std::numeric_limits<double>::infinity();
    for (double v : {0.0, -0.0, inf, -inf, std::nan(""), -std::nan(""), 5e-324, 1e-310, 1e-45, 1e-40,
                     1e300, -1e300, 3.4028235e38, 3.4028236e38, 65504.0, 65520.0, 65519.99})
      all->push_back(v);
    return all;
  }();
  return *numbers;
}

// Values to convert from: all codes of types up to 16 bits, else Numbers() and integers around powers
// of two.
Literal ValuesOf(PrimitiveType type) {
  const int64_t width = ByteWidth(type);
  if (width <= 2) {
    const int64_t n = type == PrimitiveType::kPred ? 2 : int64_t{1} << BitWidth(type);
    Literal l(Shape::Array(type, {n}));
    for (int64_t i = 0; i < n; ++i) {
      if (IsIntegral(type) || type == PrimitiveType::kPred) {
        l.SetFromInt64(i, i);
      } else {
        std::memcpy(l.mutable_bytes() + i * width, &i, static_cast<size_t>(width));
      }
    }
    return l;
  }
  if (IsIntegral(type)) {
    std::vector<int64_t> values;
    for (int bit = 0; bit < 64; ++bit) {
      const uint64_t p = uint64_t{1} << bit;
      for (uint64_t v : {p, p + p / 2, p + p / 4, p + p / 8, p + p / 16 + p / 32}) {
        for (uint64_t d : {0, 1, 2, 5})
          for (uint64_t s : {v + d, v - d, 0 - v + d, 0 - v - d})
            values.push_back(static_cast<int64_t>(s));
      }
    }
    Literal l(Shape::Array(type, {static_cast<int64_t>(values.size())}));
    for (size_t i = 0; i < values.size(); ++i) l.SetFromInt64(static_cast<int64_t>(i), values[i]);
    return l;
  }
  std::vector<double> v = Numbers();
  for (uint32_t i = 0; i < 0x10000; ++i) v.push_back(double{std::bit_cast<float>(i << 16)});
  Literal l(Shape::Array(type, {static_cast<int64_t>(v.size())}));
  for (size_t i = 0; i < v.size(); ++i) {
    const int64_t at = static_cast<int64_t>(i);
    l.SetFromDouble(at, v[i]);
    const std::complex<double> c(v[i], v[(i * 7 + 3) % v.size()]);
    if (type == PrimitiveType::kC64)
      l.mutable_data<std::complex<float>>()[i] = static_cast<std::complex<float>>(c);
    if (type == PrimitiveType::kC128) l.mutable_data<std::complex<double>>()[i] = c;
  }
  return l;
}

class EachType : public testing::TestWithParam<PrimitiveType> {};

TEST_P(EachType, ConvertsToEveryOther) {
  const PrimitiveType from = GetParam();
  Literal values = ValuesOf(from);
  std::vector<std::pair<PrimitiveType, std::string>> results;
  for (PrimitiveType to : AllTypes()) results.emplace_back(to, "convert(p0)");
  ExpectEqual(ModuleOf({&from, 1}, values.num_elements(), results), {&values, 1}, HostIsas());
}

// What is only moved keeps its code, whatever NaN or padding that is.
TEST_P(EachType, KeepsItsBytesWhenMoved) {
  Literal values = ValuesOf(GetParam());
  const int64_t n = values.num_elements();
  const std::string t = Name(GetParam());
  const std::string text = absl::StrCat("HloModule m\nENTRY e {\n x = ", t, "[", n,
                                        "] parameter(0)\n ROOT r = ", t, "[", n,
                                        "] reverse(x), dimensions={0}\n}\n");
  absl::StatusOr<std::unique_ptr<Module>> module = ParseModule(text, {});
  ASSERT_TRUE(module.ok()) << module.status();
  KernelRequest request = DenseRequest(WrapEntryAsFusion(**module));
  const int64_t width = ByteWidth(GetParam());
  const bool half = IsFloat(GetParam()) && BitWidth(GetParam()) == 16;  // signalling NaNs are quietened
  for (const std::string& isa : HostIsas()) {
    absl::StatusOr<KernelRunner> runner = KernelRunner::Make(request, {.isa = isa});
    ASSERT_TRUE(runner.ok()) << runner.status();
    absl::StatusOr<std::vector<Literal>> got = runner->Run({values});
    ASSERT_TRUE(got.ok()) << got.status();
    for (int64_t i = 0; i < n; ++i) {
      if (half && std::isnan(values.GetAsDouble(n - 1 - i))) continue;
      ASSERT_EQ(std::memcmp((*got)[0].bytes() + i * width, values.bytes() + (n - 1 - i) * width,
                            static_cast<size_t>(width)),
                0)
          << isa << " element " << i;
    }
  }
}

using Results = std::vector<std::pair<PrimitiveType, std::string>>;

void AddUnary(Results& r, PrimitiveType type, const std::vector<const char*>& ops) {
  for (const char* op : ops) r.emplace_back(type, absl::StrCat(op, "(p0)"));
}
void AddBinary(Results& r, PrimitiveType type, const std::vector<const char*>& ops) {
  for (const char* op : ops) r.emplace_back(type, absl::StrCat(op, "(p0, p1)"));
}
void AddCompares(Results& r, std::initializer_list<const char*> directions) {
  for (const char* d : directions)
    r.emplace_back(PrimitiveType::kPred, absl::StrCat("compare(p0, p1), direction=", d));
}

// All pairs of values of a type of at most 8 bits.
std::vector<Literal> AllPairs(PrimitiveType type) {
  const Literal values = ValuesOf(type);
  const int64_t n = values.num_elements();
  std::vector<Literal> pairs(2, Literal(Shape::Array(type, {n * n})));
  for (int64_t i = 0; i < n * n; ++i) {
    pairs[0].mutable_bytes()[i] = values.bytes()[i / n];
    pairs[1].mutable_bytes()[i] = values.bytes()[i % n];
  }
  return pairs;
}

TEST_P(EachType, ComputesOnAllPairsOfNarrowValues) {
  const PrimitiveType type = GetParam();
  if (BitWidth(type) > 8) GTEST_SKIP() << "a wider type";
  std::vector<Literal> pairs = AllPairs(type);
  Results r;
  AddCompares(r, {"EQ", "NE", "LT", "LE", "GT", "GE"});
  r.emplace_back(type, "clamp(p0, p1, p0)");
  if (IsFloat(type)) {
    r.emplace_back(PrimitiveType::kPred, "compare(p0, p1), direction=LT, type=TOTALORDER");
    r.emplace_back(PrimitiveType::kPred, "is-finite(p0)");
    AddUnary(r, type, {"abs", "negate", "sign", "floor", "ceil", "round-nearest-even",
                       "round-nearest-afz", "sqrt", "rsqrt", "real", "imag"});
    AddBinary(r, type,
              {"add", "subtract", "multiply", "divide", "maximum", "minimum", "remainder"});
  } else if (type == PrimitiveType::kPred) {
    AddUnary(r, type, {"not"});
    AddBinary(r, type, {"and", "or", "xor", "maximum", "minimum"});
  } else {
    AddUnary(r, type, {"negate", "not", "popcnt", "count-leading-zeros"});
    if (IsSigned(type)) AddUnary(r, type, {"abs", "sign"});
    AddBinary(r, type, {"add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum",
                        "and", "or", "xor", "power", "mulhi", "shift-left", "shift-right-logical",
                        "shift-right-arithmetic"});
  }
  const PrimitiveType params[] = {type, type};
  ExpectEqual(ModuleOf(params, pairs[0].num_elements(), r), pairs, HostIsas());
}

TEST_P(EachType, HasElementaryFunctions) {
  const PrimitiveType type = GetParam();
  if (!IsFloat(type) || BitWidth(type) > 8) GTEST_SKIP() << "not a narrow float";
  std::vector<Literal> pairs = AllPairs(type);
  Results r;
  AddUnary(r, type, {"exponential", "exponential-minus-one", "log", "log-plus-one", "logistic",
                     "tanh", "sine", "cosine", "tan", "erf", "cbrt", "acos", "acosh", "asin",
                     "asinh", "atan", "atanh", "sinh", "cosh"});
  AddBinary(r, type, {"atan2", "power"});
  const PrimitiveType params[] = {type, type};
  for (Literal& l : pairs) {  // pow(1, NaN) is 1, but not that of a signalling one
    for (int64_t i = 0; i < l.num_elements(); ++i) l.SetFromDouble(i, l.GetAsDouble(i));
  }
  // From f32 functions: next to a tie of the narrow type one may fall to the other side.
  ToleranceRule rule = ToleranceRule::Ulps(1);
  // f4e2m1fn makes a NaN a zero of its sign, which for a NaN out of a function says nothing.
  rule.zero_signs = type != PrimitiveType::kF4E2M1FN;
  ExpectEqual(ModuleOf(params, pairs[0].num_elements(), r), pairs, {HostIsas().back()}, rule);
}

std::string TypeName(const testing::TestParamInfo<PrimitiveType>& info) { return Name(info.param); }
INSTANTIATE_TEST_SUITE_P(ValueTypes, EachType, testing::ValuesIn(AllTypes()), TypeName);

class ComplexType : public testing::TestWithParam<PrimitiveType> {};

// All pairs of complex numbers whose parts are special values, as two literals.
std::vector<Literal> ComplexPairs(PrimitiveType type) {
  const double inf = std::numeric_limits<double>::infinity();
  const double parts[] = {0.0, -0.0, 1.0, -1.0, inf, -inf, std::nan(""), 0.3, -2.5, 1e-30, 1e30, 100};
  std::vector<std::complex<double>> values;
  for (double re : parts) {
    for (double im : parts) values.emplace_back(re, im);
  }
  std::mt19937_64 random(5);
  std::normal_distribution<double> normal(0, 2);
  for (int i = 0; i < 40; ++i) values.emplace_back(normal(random), normal(random));
  const size_t n = values.size();
  std::vector<Literal> pairs(2, Literal(Shape::Array(type, {static_cast<int64_t>(n * n)})));
  for (size_t i = 0; i < n * n; ++i) {
    for (size_t k : {0, 1}) {
      const std::complex<double> v = values[k == 0 ? i / n : i % n];
      if (type == PrimitiveType::kC64) {
        pairs[k].mutable_data<std::complex<float>>()[i] = static_cast<std::complex<float>>(v);
      } else {
        pairs[k].mutable_data<std::complex<double>>()[i] = v;
      }
    }
  }
  return pairs;
}

TEST_P(ComplexType, ComputesAsTheEvaluatorDoes) {
  const PrimitiveType type = GetParam(), part = ComplexComponent(type);
  std::vector<Literal> pairs = ComplexPairs(type);
  const PrimitiveType params[] = {type, type};
  Results r;
  AddUnary(r, part, {"abs", "real", "imag"});
  AddUnary(r, type, {"negate", "sign", "copy"});
  AddBinary(r, type, {"add", "subtract", "multiply", "divide"});
  AddCompares(r, {"EQ", "NE"});
  ExpectEqual(ModuleOf(params, pairs[0].num_elements(), r), pairs, HostIsas());
}

TEST_P(ComplexType, HasElementaryFunctions) {
  const PrimitiveType type = GetParam();
  std::vector<Literal> pairs = ComplexPairs(type);
  const PrimitiveType params[] = {type, type};
  const std::vector<std::vector<const char*>> groups = {
      {"exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "sqrt", "rsqrt"},
      {"sine", "cosine", "tan", "tanh", "sinh", "cosh", "cbrt"},
      {"acos", "acosh", "asin", "asinh", "atan", "atanh"}};
  for (size_t i = 0; i < groups.size(); ++i) {
    Results r;
    AddUnary(r, type, groups[i]);
    if (i == 0) AddBinary(r, type, {"power", "atan2"});
    // The same C functions on every instruction set.
    ExpectEqual(ModuleOf(params, pairs[0].num_elements(), r), pairs,
                {HostIsas()[i % HostIsas().size()]});
  }
}

INSTANTIATE_TEST_SUITE_P(ValueTypes, ComplexType,
                         testing::Values(PrimitiveType::kC64, PrimitiveType::kC128), TypeName);

TEST(StochasticConvert, RoundsByTheRandomBits) {
  for (PrimitiveType from : {PrimitiveType::kF32, PrimitiveType::kF64, PrimitiveType::kBF16,
                             PrimitiveType::kF16, PrimitiveType::kF8E5M2}) {
    const PrimitiveType bits = BitWidth(from) == 64   ? PrimitiveType::kU64
                               : BitWidth(from) == 32 ? PrimitiveType::kU32
                               : BitWidth(from) == 16 ? PrimitiveType::kU16
                                                      : PrimitiveType::kU8;
    constexpr int64_t kN = 5000;
    std::vector<Literal> args = {Literal(Shape::Array(from, {kN})),
                                 Literal(Shape::Array(bits, {kN}))};
    std::mt19937_64 random(3);
    std::normal_distribution<double> normal(0, 30);
    for (int64_t i = 0; i < kN; ++i) {
      args[0].SetFromDouble(i, i % 9 == 0 ? Numbers()[static_cast<size_t>(i)] : normal(random));
      args[1].SetFromInt64(i, static_cast<int64_t>(random()));
    }
    Results r;
    for (PrimitiveType to : {PrimitiveType::kS4, PrimitiveType::kS8, PrimitiveType::kS32})
      AddBinary(r, to, {"stochastic-convert"});
    const PrimitiveType params[] = {from, bits};
    ExpectEqual(ModuleOf(params, kN, r), args, HostIsas());
  }
}

TEST(ReducePrecision, WorksOnTheTypesOwnBits) {
  for (PrimitiveType type : AllTypes()) {
    const bool ieee = type == PrimitiveType::kF64 || type == PrimitiveType::kF32 ||
                      type == PrimitiveType::kF16 || type == PrimitiveType::kBF16 ||
                      type == PrimitiveType::kF8E5M2 || type == PrimitiveType::kF8E4M3 ||
                      type == PrimitiveType::kF8E3M4;
    if (!ieee) continue;
    Literal values = ValuesOf(type);
    Results r;
    for (auto [e, m] : {std::pair{5, 10}, {8, 7}, {4, 3}, {2, 0}, {5, 2}, {11, 52}}) {
      r.emplace_back(type, absl::StrCat("reduce-precision(p0), exponent_bits=", e,
                                        ", mantissa_bits=", m));
    }
    ExpectEqual(ModuleOf({&type, 1}, values.num_elements(), r), {&values, 1}, HostIsas());
  }
}

}  // namespace
}  // namespace tenon
