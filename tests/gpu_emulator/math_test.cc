// The math bodies as a GPU runs them: code for NVPTX on the emulator gives the bits that the host's compiler makes of the same bodies, for
// every function of float, and of double as library.h defines it; complex functions against the C library's.
#include "backends/codegen/math/math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <functional>
#include <map>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "backends/codegen/math/complex.h"
#include "backends/codegen/math/library.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/IntrinsicsNVPTX.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Verifier.h"
#include "llvm/Support/raw_ostream.h"
#include "tools/lab/gpu/emulated_memory.h"
#include "tools/lab/gpu/emulator.h"
#include "tools/ulp-sweep/sweep_f64.h"

namespace tenon::gpu {
namespace {

using BodyEmitter = std::function<std::vector<llvm::Value*>(llvm::IRBuilderBase&, std::span<llvm::Value* const>)>;

constexpr int kThreads = 128;

// Thread t computes lanes t * lanes and so on: results[k][i] = body(operands[0][i], operands[1][i], ...)[k]. Arrays are of one size, a
// multiple of a block's.
struct GpuBody {
  GpuBody(int operands, int results, int lanes, bool is_double, const BodyEmitter& emit)
      : operands(operands), results(results), lanes(lanes) {
    llvm::LLVMContext context;
    llvm::Module m("math", context);
    m.setTargetTriple(llvm::Triple("nvptx64-nvidia-cuda"));
    m.setDataLayout("e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64");
    llvm::IRBuilder<> b(context);
    const std::vector<llvm::Type*> parameters(static_cast<size_t>(operands + results), b.getPtrTy(1));
    auto* f = llvm::Function::Create(llvm::FunctionType::get(b.getVoidTy(), parameters, false), llvm::Function::ExternalLinkage, "k", m);
    f->setCallingConv(llvm::CallingConv::PTX_Kernel);
    b.SetInsertPoint(llvm::BasicBlock::Create(context, "entry", f));
    llvm::Value* thread = b.CreateIntrinsic(llvm::Intrinsic::nvvm_read_ptx_sreg_tid_x, {});
    llvm::Value* block = b.CreateIntrinsic(llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_x, {});
    llvm::Value* at = b.CreateZExt(b.CreateAdd(b.CreateMul(block, b.getInt32(kThreads)), thread), b.getInt64Ty());
    llvm::Type* scalar = is_double ? b.getDoubleTy() : b.getFloatTy();
    llvm::Type* type = lanes == 1 ? scalar : llvm::FixedVectorType::get(scalar, static_cast<unsigned>(lanes));
    std::vector<llvm::Value*> args;
    for (int k = 0; k < operands; ++k) {
      args.push_back(b.CreateAlignedLoad(type, b.CreateGEP(type, f->getArg(static_cast<unsigned>(k)), at), llvm::Align(8)));
    }
    const std::vector<llvm::Value*> values = emit(b, args);
    for (int k = 0; k < results; ++k) {
      llvm::Value* place = b.CreateGEP(type, f->getArg(static_cast<unsigned>(operands + k)), at);
      b.CreateAlignedStore(values[static_cast<size_t>(k)], place, llvm::Align(8));
    }
    b.CreateRetVoid();
    math::DefineLibraryFunctions(m);
    std::string problem;
    llvm::raw_string_ostream stream(problem);
    if (llvm::verifyModule(m, &stream)) throw std::runtime_error(problem);
    std::string text;
    llvm::raw_string_ostream out(text);
    m.print(out, nullptr);
    auto loaded = EmulatedModule::Load(text);
    if (!loaded.ok()) throw std::runtime_error(std::string(loaded.status().message()));
    module = *loaded;
  }

  template <typename T>
  std::vector<std::vector<T>> Run(const std::vector<std::vector<T>>& in) const {
    EmulatedMemory& memory = TheEmulatedMemory();
    const int64_t count = static_cast<int64_t>(in[0].size()), bytes = count * static_cast<int64_t>(sizeof(T));
    std::vector<void*> pointers;
    for (const std::vector<T>& array : in) {
      pointers.push_back(memory.Allocate(bytes));
      EXPECT_TRUE(memory.Write(pointers.back(), array.data(), bytes).ok());
    }
    for (int k = 0; k < results; ++k) pointers.push_back(memory.Allocate(bytes));
    std::vector<void*> parameters;
    for (void*& p : pointers) parameters.push_back(&p);
    const LaunchConfig config{.grid = {count / (kThreads * lanes), 1, 1}, .block = {kThreads, 1, 1}};
    const absl::Status status = module->Launch("k", config, parameters, {.order_seed = 5});
    EXPECT_TRUE(status.ok()) << status;
    std::vector<std::vector<T>> out(static_cast<size_t>(results), std::vector<T>(static_cast<size_t>(count)));
    for (int k = 0; k < results; ++k) {
      EXPECT_TRUE(memory.Read(out[static_cast<size_t>(k)].data(), pointers[static_cast<size_t>(operands + k)], bytes).ok());
    }
    for (void* p : pointers) memory.Free(p);
    return out;
  }

  int operands, results, lanes;
  std::shared_ptr<EmulatedModule> module;
};

GpuBody BodyOf(math::Fn fn, int lanes, bool is_double) {
  return GpuBody(math::Info(fn).arity, 1, lanes, is_double, [&](llvm::IRBuilderBase& b, std::span<llvm::Value* const> args) {
    return std::vector<llvm::Value*>{math::Emit(b, fn, args)};
  });
}

ulp_sweep::JitBody HostBodyOf(math::Fn fn, ulp_sweep::JitOptions options) {
  auto body = ulp_sweep::JitBody::Create(
      math::Info(fn).arity, [fn](llvm::IRBuilderBase& b, std::span<llvm::Value* const> args) { return math::Emit(b, fn, args); }, options);
  if (!body.ok()) throw std::runtime_error(std::string(body.status().message()));
  return std::move(*body);
}

// Whole blocks.
template <typename T>
void Pad(std::vector<T>* values, int lanes) {
  while (values->size() % static_cast<size_t>(kThreads * lanes) != 0) values->push_back(1);
}

template <typename T>
void ExpectSameBits(const std::vector<T>& gpu, const std::vector<T>& host, const std::vector<T>& a, const std::vector<T>& b) {
  using Word = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(gpu[i]) && std::isnan(host[i])) continue;
    ASSERT_EQ(std::bit_cast<Word>(gpu[i]), std::bit_cast<Word>(host[i])) << std::hexfloat << a[i] << ", " << b[i];
  }
}

class GpuMath : public testing::TestWithParam<math::Fn> {};

TEST_P(GpuMath, FloatHasTheHostsBits) {
  const math::FnInfo& info = math::Info(GetParam());
  std::vector<float> a, b;
  for (const float x : ulp_sweep::SpecialValues()) {
    for (const float y : info.arity == 2 ? ulp_sweep::SpecialValues() : std::vector<float>{1}) {
      a.push_back(x);
      b.push_back(y);
    }
  }
  for (uint64_t i = 0; i < 20000; ++i) {
    const auto [x, y] = ulp_sweep::RandomPair(i, 3);
    a.push_back(x);
    b.push_back(y);
  }
  Pad(&a, 4);
  Pad(&b, 4);
  std::vector<std::vector<float>> in = {a};
  if (info.arity == 2) in.push_back(b);
  const std::vector<float> gpu = BodyOf(GetParam(), 4, false).Run(in)[0];
  std::vector<float> host(a.size());
  HostBodyOf(GetParam(), {.width = 4}).Run(a.data(), b.data(), host.data(), static_cast<int64_t>(a.size()));
  ExpectSameBits(gpu, host, a, b);
  // The figure of docs/accuracy.md's kind, of this sample.
  ulp_sweep::SweepResult worst;
  const ulp_sweep::Reference& reference = ulp_sweep::ReferenceFor(GetParam());
  for (size_t i = 0; i < a.size(); ++i) {
    ulp_sweep::Note(worst, a[i], b[i], gpu[i], reference.unary ? reference.unary(a[i]) : reference.binary(a[i], b[i]));
  }
  EXPECT_LE(worst.worst.ulp, info.max_ulp);
  EXPECT_GT(worst.worst.ulp, 0.4) << "no measurement finds less";
  EXPECT_EQ(worst.mismatches, 0);
}

TEST_P(GpuMath, DoubleHasTheHostsBits) {
  const math::FnInfo& info = math::Info(GetParam());
  const ulp_sweep::ReferenceF64* reference = ulp_sweep::ReferenceF64For(GetParam());
  ASSERT_EQ(reference != nullptr, info.max_ulp_f64 > 0);
  if (reference == nullptr) GTEST_SKIP() << "no function of double of its own";
  std::vector<double> a, b;
  ulp_sweep::SampleF64(*reference, 20000, 3, &a, &b);
  Pad(&a, 2);
  Pad(&b, 2);
  std::vector<std::vector<double>> in = {a};
  if (info.arity == 2) in.push_back(b);
  const std::vector<double> gpu = BodyOf(GetParam(), 2, true).Run(in)[0];
  std::vector<double> host(a.size());
  const ulp_sweep::JitBody body = HostBodyOf(GetParam(), {.width = 1, .is_double = true});
  body.Run(a.data(), b.data(), host.data(), static_cast<int64_t>(a.size()));
  ExpectSameBits(gpu, host, a, b);
  const ulp_sweep::ResultF64 worst = ulp_sweep::CompareF64(*reference, a, b, gpu);
  EXPECT_LE(worst.worst.ulp, info.max_ulp_f64);
  EXPECT_EQ(worst.mismatches, 0);
}

INSTANTIATE_TEST_SUITE_P(All, GpuMath, testing::ValuesIn([] {
                           std::vector<math::Fn> all;
                           for (const math::FnInfo& info : math::Functions()) all.push_back(info.fn);
                           return all;
                         }()),
                         [](const auto& info) { return std::string(math::Info(info.param).name); });

// ---- complex ----

using Complex = std::complex<double>;
using Wide = std::complex<long double>;

struct ComplexFn {
  const char* symbol;
  std::function<Complex(Complex, Complex)> host;
  std::function<Wide(Wide, Wide)> wide;
  int arity = 1;
  double units = 4;  // of the larger part, on the sample
};

#define TENON_COMPLEX(name, units) \
  {"c" #name, [](Complex x, Complex) { return std::name(x); }, [](Wide x, Wide) { return std::name(x); }, 1, units}
const ComplexFn kComplex[] = {
    TENON_COMPLEX(exp, 3),   TENON_COMPLEX(log, 2),   TENON_COMPLEX(sqrt, 3),  TENON_COMPLEX(sin, 2),   TENON_COMPLEX(cos, 2),
    TENON_COMPLEX(tan, 6),   TENON_COMPLEX(sinh, 2),  TENON_COMPLEX(cosh, 2),  TENON_COMPLEX(tanh, 6),  TENON_COMPLEX(asin, 4),
    TENON_COMPLEX(acos, 4),  TENON_COMPLEX(atan, 4),  TENON_COMPLEX(asinh, 4), TENON_COMPLEX(acosh, 4), TENON_COMPLEX(atanh, 4),
    {"__divdc3", [](Complex x, Complex y) { return x / y; }, [](Wide x, Wide y) { return x / y; }, 2, 3},
};
#undef TENON_COMPLEX

std::vector<Complex> RunComplex(const ComplexFn& fn, const std::vector<Complex>& x, const std::vector<Complex>& y) {
  const GpuBody body(2 * fn.arity, 2, 1, true, [&](llvm::IRBuilderBase& b, std::span<llvm::Value* const> args) {
    const auto v = [&](size_t k) { return math::V{&b, args[k]}; };
    const math::ComplexV p{v(0), v(1)};
    const math::ComplexV r = fn.arity == 1 ? math::CallComplex(fn.symbol, {p}) : math::CallComplex(fn.symbol, {p, {v(2), v(3)}});
    return std::vector<llvm::Value*>{r.re.v, r.im.v};
  });
  std::vector<std::vector<double>> in(static_cast<size_t>(2 * fn.arity));
  for (size_t i = 0; i < x.size(); ++i) {
    in[0].push_back(x[i].real());
    in[1].push_back(x[i].imag());
    if (fn.arity == 1) continue;
    in[2].push_back(y[i].real());
    in[3].push_back(y[i].imag());
  }
  for (std::vector<double>& array : in) Pad(&array, 1);
  const auto out = body.Run(in);
  std::vector<Complex> r;
  for (size_t i = 0; i < x.size(); ++i) r.emplace_back(out[0][i], out[1][i]);
  return r;
}

class GpuComplex : public testing::TestWithParam<ComplexFn> {};

TEST_P(GpuComplex, IsTheCLibrarys) {
  std::vector<Complex> x, y;
  for (uint64_t i = 0; i < 20000; ++i) {
    // Sizes alike and unlike, near the axes and near 1.
    double parts[4];
    for (uint64_t k = 0; k < 4; ++k) {
      const uint64_t r = ulp_sweep::SplitMix(i * 4 + k + 99);
      const double unit = static_cast<double>(r >> 11) * 0x1p-53 * 2 - 1;
      parts[k] = i % 4 == 0 ? unit * 10 : std::ldexp(unit, static_cast<int>(r % 41) - 30);
      if (i % 7 == k) parts[k] = 1 + unit * 0x1p-20;
    }
    x.emplace_back(parts[0], parts[1]);
    y.emplace_back(parts[2], parts[3]);
  }
  const std::vector<Complex> got = RunComplex(GetParam(), x, y);
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const Wide want = GetParam().wide(Wide(x[i]), Wide(y[i]));
    const long double size = std::max(std::abs(want.real()), std::abs(want.imag()));
    if (size > std::numeric_limits<double>::max()) continue;
    const long double off = std::max(std::abs(got[i].real() - want.real()), std::abs(got[i].imag() - want.imag()));
    const double units = static_cast<double>(off / std::ldexp(1.0L, std::max(std::ilogb(size), -1022) - 52));
    if (GetParam().arity == 2) {
      ASSERT_EQ(got[i], GetParam().host(x[i], y[i])) << x[i] << " " << y[i];
    }
    ASSERT_LE(units, GetParam().units) << x[i] << " " << y[i] << ": " << got[i] << ", want " << want;
    worst = std::max(worst, units);
  }
  std::cout << GetParam().symbol << ": " << worst << " units\n";
  EXPECT_GT(worst, 0.4);
}

// Zeros, infinities, NaN: each part is a NaN, an infinity, a zero with its sign where the C library's is.
TEST_P(GpuComplex, SpecialValues) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<double> parts = {0.0, -0.0, 1.0, -1.0, 0.5, -2.0, inf, -inf, nan};
  if (GetParam().arity == 1) parts.insert(parts.end(), {50.0, -50.0, 705.0, 720.0, -720.0, 1e-200, 1e-310, -1e200, 1e300});
  std::vector<Complex> x, y;
  for (const double a : parts) {
    for (const double b : parts) {
      if (GetParam().arity == 1) {
        x.emplace_back(a, b);
        y.emplace_back(1, 1);
        continue;
      }
      for (const double c : parts) {
        for (const double d : parts) {
          x.emplace_back(a, b);
          y.emplace_back(c, d);
        }
      }
    }
  }
  const std::vector<Complex> got = RunComplex(GetParam(), x, y);
  for (size_t i = 0; i < x.size(); ++i) {
    const Complex want = GetParam().host(x[i], y[i]);
    const auto same = [&](double g, double w) {
      if (std::isnan(w)) return std::isnan(g);
      if (std::isinf(w) || w == 0) return g == w && std::signbit(g) == std::signbit(w);
      return std::abs(g - w) <= std::abs(w) * 0x1p-49 + std::numeric_limits<double>::denorm_min();
    };
    EXPECT_TRUE(same(got[i].real(), want.real()) && same(got[i].imag(), want.imag()))
        << x[i] << " " << y[i] << ": " << got[i] << ", want " << want;
  }
}

INSTANTIATE_TEST_SUITE_P(All, GpuComplex, testing::ValuesIn(kComplex), [](const auto& info) { return std::string(info.param.symbol); });

TEST(GpuMath, DefinesWhatKernelsCall) {
  const absl::flat_hash_set<std::string_view> defined(math::LibraryFunctions().begin(), math::LibraryFunctions().end());
  EXPECT_TRUE(std::is_sorted(math::LibraryFunctions().begin(), math::LibraryFunctions().end()));
  for (const math::FnInfo& info : math::Functions()) EXPECT_TRUE(info.libm.empty() || defined.contains(info.libm)) << info.libm;
}

}  // namespace
}  // namespace tenon::gpu
