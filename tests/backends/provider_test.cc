// Who computes a dot on a machine for which the library has good code, and on one for which it hasn't (MachineModel::matmul_share).
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "backends/contract/provider.h"
#include "backends/contract/target.h"
#include "backends/driver/targets.h"
#include "hlo/check.h"
#include "hlo/text/text.h"
#include "passes/lower/launch_plan.h"
#include "passes/memory/value_views.h"

namespace tenon {
namespace {

class Machine : public Target {
 public:
  explicit Machine(double matmul_share) : Target(Facts(matmul_share)) {}
  bool CanGenerate(const Instruction&) const override { return true; }
  bool ReducesInAnyOrder(const Instruction&) const override { return true; }
  absl::StatusOr<LaunchPlan> Plan(const Instruction&, const ValueViews&, bool) const override { return absl::UnimplementedError("none"); }
  absl::StatusOr<std::vector<uint8_t>> Emit(const EmitRequest&) const override { return absl::UnimplementedError("none"); }
  CodeLoader* loader() const override { return nullptr; }

 private:
  static TargetFacts Facts(double matmul_share) {
    TargetFacts facts{.name = "machine", .providers = HostProviders()};
    facts.machine.matmul_share = matmul_share;
    facts.info.rows_as_sums = 4;
    return facts;
  }
};

// Rows, columns and terms may be expressions of `symbols` (", symbols={...}").
std::string ProviderOf(double matmul_share, const std::string& symbols, int64_t batch, const std::string& rows, const std::string& columns,
                       const std::string& terms, const std::string& type = "f32") {
  const auto shape = [&](const std::string& m, const std::string& n) { return absl::StrCat(type, "[", batch, ",", m, ",", n, "]"); };
  const auto module = ParseModule(absl::StrCat(
      "HloModule m", symbols, "\nENTRY e {\n x = ", shape(rows, terms), " parameter(0)\n y = ", shape(columns, terms),
      " parameter(1)\n ROOT d = ", shape(rows, columns),
      " dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}\n}\n"));
  TENON_CHECK(module.ok(), module.status().ToString());
  const Machine machine(matmul_share);
  const Choice choice = ChooseProvider(*(*module)->entry()->root(), {.target = &machine, .host_functions = kPlainFunctions});
  return std::string(choice.provider->name);
}
std::string ProviderOf(double matmul_share, int64_t batch, int64_t rows, int64_t columns, int64_t terms, const std::string& type = "f32") {
  return ProviderOf(matmul_share, "", batch, absl::StrCat(rows), absl::StrCat(columns), absl::StrCat(terms), type);
}

// Windows wider than the result, the image's features in front: a kernel's gradient if some convolution has one with these paddings,
// else a convolution like any other. Both are the library's; patches of an image whose batch is in front are no gradient.
TEST(Providers, KernelGradientsAreToldFromConvolutions) {
  const auto told = [](const std::string& x, const std::string& window, const std::string& labels, const std::string& result) {
    const auto module = ParseModule(absl::StrCat("HloModule m\nENTRY e {\n x = f32[", x, "] parameter(0)\n k = f32[3,4,5,5] parameter(1)\n",
                                                 " ROOT c = f32[", result, "] convolution(x, k), window={", window,
                                                 "}, dim_labels=", labels, "_io01->", labels, "\n}\n"));
    TENON_CHECK(module.ok(), module.status().ToString());
    const Instruction& convolution = *(*module)->entry()->root();
    const Machine machine(1);
    const uint64_t functions = Bit(HostFunction::kConvolution) | Bit(HostFunction::kKernelGradient);
    const Choice choice = ChooseProvider(convolution, {.target = &machine, .host_functions = functions});
    EXPECT_EQ(choice.provider->name, "host.convolution") << window;
    return IsKernelGradient(convolution);
  };
  EXPECT_TRUE(told("3,2,6,6", "size=5x5 pad=1_1x1_1", "fb01", "4,2,4,4"));
  EXPECT_FALSE(told("3,2,6,6", "size=5x5 stride=2x2", "fb01", "4,2,1,1"));
  EXPECT_FALSE(told("2,3,6,6", "size=5x5 pad=1_1x1_1", "bf01", "2,4,4,4"));
}

TEST(Providers, TheLibraryMultipliesWhereItHasGoodCode) {
  for (const int64_t rows : {1, 4, 64, 500}) EXPECT_EQ(ProviderOf(1, 2, rows, 512, 512), "host.matmul") << rows;
}

TEST(Providers, GeneratedCodeMultipliesWhereTheLibraryHasNone) {
  EXPECT_EQ(ProviderOf(0.5, 1, 500, 512, 512), "generated");
  EXPECT_EQ(ProviderOf(0.5, 1, 4, 512, 512), "generated") << "few rows: packed by the kernel";
  EXPECT_EQ(ProviderOf(0.5, 1, 3, 512, 512), "host.matmul");
  EXPECT_EQ(ProviderOf(0.5, 1, 4, 512, 1 << 15), "host.matmul") << "too long to pack";
  EXPECT_EQ(ProviderOf(0.5, 1, 64, 512, 1 << 15), "generated");
  EXPECT_EQ(ProviderOf(0.5, 1, 500, 15, 512), "host.matmul") << "columns for less than a vector";
  EXPECT_EQ(ProviderOf(0.5, 1, 500, 512, 15), "host.matmul") << "little work behind each load";
  EXPECT_EQ(ProviderOf(0.5, 1, 1, 512, 512), "host.matmul") << "a matrix and a vector";
  EXPECT_EQ(ProviderOf(0.5, 32, 1, 4096, 64), "generated") << "many of those";
  EXPECT_EQ(ProviderOf(0.5, 1, 500, 512, 512, "bf16"), "host.matmul");
}

// One vector, or few, and a matrix that is read as it lies: threads share it, where the library leaves it to one.
TEST(Providers, VectorsByMatricesAreGeneratedWhereTheLibraryHasNoCode) {
  const auto provider = [](double share, const std::string& x, const std::string& y, const std::string& result, int x_sums, int y_sums) {
    const std::string sums = absl::StrCat("lhs_contracting_dims={", x_sums, "}, rhs_contracting_dims={", y_sums, "}");
    const auto module = ParseModule(absl::StrCat("HloModule m\nENTRY e {\n x = ", x, " parameter(0)\n y = ", y,
                                                 " parameter(1)\n ROOT d = ", result, " dot(x, y), ", sums, "\n}\n"));
    TENON_CHECK(module.ok(), module.status().ToString());
    const Machine machine(share);
    return std::string(ChooseProvider(*(*module)->entry()->root(), {.target = &machine, .host_functions = kPlainFunctions}).provider->name);
  };
  for (const std::string type : {"f32", "f64", "bf16", "f16"}) {
    EXPECT_EQ(provider(0.5, type + "[1,512]", type + "[8000,512]", type + "[1,8000]", 1, 1), "generated") << type;
    EXPECT_EQ(provider(0.5, type + "[8000,512]", type + "[512]", type + "[8000]", 1, 0), "generated") << type;
    EXPECT_EQ(provider(1, type + "[1,512]", type + "[8000,512]", type + "[1,8000]", 1, 1), "host.matmul") << type;
    const bool half = type.ends_with("16");
    EXPECT_EQ(provider(0.5, type + "[3,512]", type + "[8000,512]", type + "[3,8000]", 1, 1), half ? "host.matmul" : "generated") << type;
    EXPECT_EQ(provider(0.5, type + "[1,512]", type + "[512,800]", type + "[1,800]", 1, 0), half ? "host.matmul" : "generated") << type;
  }
  EXPECT_EQ(provider(0.5, "f32[1,5120]", "f32[5120,8000]", "f32[1,8000]", 1, 0), "host.matmul") << "columns of a matrix beyond the caches";
  EXPECT_EQ(provider(0.5, "f32[3,512]", "f32[512,800]", "f32[3,800]", 1, 0), "generated");
  EXPECT_EQ(provider(0.5, "f32[512,3]", "f32[800,512]", "f32[3,800]", 0, 1), "host.matmul") << "rows that are columns in memory";
  EXPECT_EQ(provider(0.5, "f32[1,512]", "f32[15,512]", "f32[1,15]", 1, 1), "host.matmul") << "few sums";
}

// By what they usually are, whichever dim it is.
TEST(Providers, OfSymbolicSizesTheTypicalOnesTell) {
  const auto provider = [](const std::string& typical, const std::string& rows, const std::string& columns, const std::string& terms) {
    return ProviderOf(0.5, absl::StrCat(", symbols={s:[0,100000]~", typical, "}"), 1, rows, columns, terms);
  };
  EXPECT_EQ(provider("500", "s", "512", "512"), "generated");
  EXPECT_EQ(provider("500", "512", "s", "512"), "generated");
  EXPECT_EQ(provider("500", "512", "512", "s"), "generated") << "a gradient of weights";
  EXPECT_EQ(provider("3", "s", "512", "512"), "host.matmul");
  EXPECT_EQ(provider("15", "512", "s", "512"), "host.matmul");
  EXPECT_EQ(provider("15", "512", "512", "s"), "host.matmul");
}

// The strides of the operands and the result that the library is handed, and its result's.
std::vector<DimVector> Strides(const std::string& dot) {
  const auto module = ParseModule(absl::StrCat("HloModule m\nENTRY e {\n", dot, "\n}\n"));
  TENON_CHECK(module.ok(), module.status().ToString());
  const ValueViews views(**module);
  const auto plan = LowerMatmul(*(*module)->entry()->root(), views);
  TENON_CHECK(plan.ok(), plan.status().ToString());
  const auto& call = static_cast<const PlannedCall&>(*plan->target);
  std::vector<DimVector> strides;
  for (const StridedView& operand : call.operands) strides.push_back(operand.strides);
  strides.push_back(call.result.strides);
  return strides;
}

TEST(Providers, ASingleRowLiesDenseForTheLibrary) {
  // One token's query and 4096 keys: the row must not pass for a column.
  EXPECT_EQ(Strides(" q = f32[16,1,64] parameter(0)\n k = f32[16,4096,64] parameter(1)\n ROOT d = f32[16,1,4096] dot(q, k), "
                    "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}"),
            (std::vector<DimVector>{{64, 64, 1}, {4096 * 64, 1, 64}, {4096, 4096, 1}}));
  EXPECT_EQ(Strides(" v = f32[1,100] parameter(0)\n a = f32[100,30] parameter(1)\n ROOT d = f32[1,30] dot(v, a), lhs_contracting_dims={1}, "
                    "rhs_contracting_dims={0}"),
            (std::vector<DimVector>{{100, 1}, {30, 1}, {30, 1}}));
  // What is no row keeps its stride.
  EXPECT_EQ(Strides(" v = f32[100,1] parameter(0)\n a = f32[100,30] parameter(1)\n ROOT d = f32[1,30] dot(v, a), lhs_contracting_dims={0}, "
                    "rhs_contracting_dims={0}"),
            (std::vector<DimVector>{{100, 1}, {30, 1}, {30, 1}}));
}

}  // namespace
}  // namespace tenon
