// mma.sync and ldmatrix against a plain matrix product. The kernels load fragments by the PTX ISA's tables, written out here once more.
#include <bit>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tests/gpu_emulator/launcher.h"
#include "tools/lab/gpu/host_math.h"

namespace tenon::gpu {
namespace {

struct Product {
  std::string intrinsic;  // behind llvm.nvvm.
  int k;
  int element_bytes;
  const char* a_type;  // of a register
  bool f16_result = false;
};

// A is 16 x k row by row, B is given as its transpose (8 x k), C and D are 16 x 8. a_order: which register gets which place.
std::string MmaKernel(const Product& p, std::vector<int> a_order = {0, 1, 2, 3}) {
  const int per = 4 / p.element_bytes, a_registers = p.k / 2 / per, b_registers = a_registers / 2;
  std::string text = R"(
define ptx_kernel void @mma(ptr addrspace(1) %a, ptr addrspace(1) %b, ptr addrspace(1) %c, ptr addrspace(1) %d) {
  %lane = call i32 @llvm.nvvm.read.ptx.sreg.laneid()
  %g = lshr i32 %lane, 2
  %t = and i32 %lane, 3
  %t2 = mul i32 %t, 2
)";
  std::vector<std::string> args, types;
  const auto load = [&](const std::string& name, const char* type, const char* array, int row_bytes, int row, int column) {
    absl::StrAppendFormat(&text, "  %%%s.r = add i32 %%g, %d\n  %%%s.o = mul i32 %%%s.r, %d\n", name, row, name, name, row_bytes);
    absl::StrAppendFormat(&text, "  %%%s.t = mul i32 %%t, 4\n  %%%s.x = add i32 %%%s.o, %%%s.t\n  %%%s.y = add i32 %%%s.x, %d\n", name,
                          name, name, name, name, name, column);
    absl::StrAppendFormat(&text, "  %%%s.p = getelementptr i8, ptr addrspace(1) %%%s, i32 %%%s.y\n", name, array, name);
    absl::StrAppendFormat(&text, "  %%%s = load %s, ptr addrspace(1) %%%s.p, align 4\n", name, type, name);
    args.push_back(absl::StrCat(type, " %", name));
    types.push_back(type);
  };
  // 4 lanes hold 16 bytes of a row, whatever the type.
  for (int r = 0; r < a_registers; ++r) {
    const int place = a_order[r];
    load(absl::StrCat("a", r), p.a_type, "a", p.k * p.element_bytes, 8 * (place % 2), 16 * (place / 2));
  }
  for (int r = 0; r < b_registers; ++r) load(absl::StrCat("b", r), p.a_type, "b", p.k * p.element_bytes, 0, 16 * r);
  const auto c_address = [&](const std::string& name, const char* array, int r, int size, int in_row) {
    absl::StrAppendFormat(&text, "  %%%s.r = add i32 %%g, %d\n  %%%s.o = mul i32 %%%s.r, 8\n  %%%s.x = add i32 %%%s.o, %%t2\n", name, 8 * r,
                          name, name, name, name);
    absl::StrAppendFormat(&text, "  %%%s.y = add i32 %%%s.x, %d\n  %%%s.p = getelementptr [%d x i8], ptr addrspace(1) %%%s, i32 %%%s.y\n",
                          name, name, in_row, name, size, array, name);
  };
  const char* c_type = p.f16_result ? "<2 x half>" : "float";
  const int c_registers = p.f16_result ? 2 : 4;
  for (int r = 0; r < c_registers; ++r) {
    const std::string name = absl::StrCat("c", r);
    c_address(name, "c", p.f16_result ? r : r / 2, p.f16_result ? 2 : 4, p.f16_result ? 0 : r % 2);
    absl::StrAppendFormat(&text, "  %%%s = load %s, ptr addrspace(1) %%%s.p, align 4\n", name, c_type, name);
    args.push_back(absl::StrCat(c_type, " %", name));
    types.push_back(c_type);
  }
  const std::string result = absl::StrCat("{", absl::StrJoin(std::vector<std::string>(c_registers, c_type), ", "), "}");
  absl::StrAppendFormat(&text, "  %%d.all = call %s @llvm.nvvm.%s(%s)\n", result, p.intrinsic, absl::StrJoin(args, ", "));
  for (int r = 0; r < c_registers; ++r) {
    const std::string name = absl::StrCat("d", r);
    c_address(name, "d", p.f16_result ? r : r / 2, p.f16_result ? 2 : 4, p.f16_result ? 0 : r % 2);
    absl::StrAppendFormat(&text, "  %%%s = extractvalue %s %%d.all, %d\n  store %s %%%s, ptr addrspace(1) %%%s.p, align 4\n", name, result,
                          r, c_type, name, name);
  }
  return absl::StrCat(text, "  ret void\n}\ndeclare ", result, " @llvm.nvvm.", p.intrinsic, "(", absl::StrJoin(types, ", "), ")\n");
}

std::vector<uint8_t> Bytes(const std::vector<float>& values, const Product& p) {
  std::vector<uint8_t> bytes;
  const bool bf16 = p.intrinsic.find("bf16") != std::string::npos;
  for (float v : values) {
    const uint32_t bits = p.element_bytes == 4 ? std::bit_cast<uint32_t>(v) : bf16 ? DoubleToBfloat(v) : DoubleToHalf(v);
    for (int k = 0; k < p.element_bytes; ++k) bytes.push_back(static_cast<uint8_t>(bits >> (8 * k)));
  }
  return bytes;
}

// Small integers: every type has them and their sums exactly.
struct Case {
  std::vector<float> a, b_transposed, c, want;
};
Case MakeCase(int k) {
  Case m{std::vector<float>(16 * k), std::vector<float>(8 * k), std::vector<float>(128), {}};
  for (size_t i = 0; i < m.a.size(); ++i) m.a[i] = static_cast<float>(static_cast<int>(i * 7 % 11) - 5);
  for (size_t i = 0; i < m.b_transposed.size(); ++i) m.b_transposed[i] = static_cast<float>(static_cast<int>(i * 5 % 13) - 6);
  for (size_t i = 0; i < m.c.size(); ++i) m.c[i] = static_cast<float>(i % 17);
  m.want = m.c;
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      for (int i = 0; i < k; ++i) m.want[row * 8 + column] += m.a[row * k + i] * m.b_transposed[column * k + i];
    }
  }
  return m;
}

std::vector<float> Multiplied(const Product& p, const Case& m, const std::string& text, uint64_t seed) {
  const auto module = MustLoad(text);
  Array<uint8_t> a(Bytes(m.a, p)), b(Bytes(m.b_transposed, p));
  const Product c_like{"", 0, p.f16_result ? 2 : 4, ""};
  Array<uint8_t> c(Bytes(m.c, c_like)), d(m.c.size() * c_like.element_bytes);
  EXPECT_THAT(LaunchKernel(*module, "mma", {.block = {32, 1, 1}}, {.order_seed = seed}, nullptr, a.data(), b.data(), c.data(), d.data()),
              Ok());
  const std::vector<uint8_t> bytes = d.Get();
  std::vector<float> got(m.c.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (p.f16_result) {
      got[i] = HalfToFloat(static_cast<uint16_t>(bytes[2 * i] | bytes[2 * i + 1] << 8));
    } else {
      std::memcpy(&got[i], &bytes[4 * i], 4);
    }
  }
  return got;
}

TEST(Mma, EqualsAPlainProduct) {
  const Product products[] = {
      {"mma.m16n8k16.row.col.f32.f32", 16, 2, "<2 x half>"},
      {"mma.m16n8k16.row.col.f16.f16", 16, 2, "<2 x half>", true},
      {"mma.m16n8k8.row.col.f32.f32", 8, 2, "<2 x half>"},
      {"mma.m16n8k16.row.col.bf16", 16, 2, "i32"},
      {"mma.m16n8k8.row.col.bf16", 8, 2, "i32"},
      {"mma.m16n8k8.row.col.tf32", 8, 4, "i32"},
      {"mma.m16n8k4.row.col.tf32", 4, 4, "i32"},
  };
  for (const Product& p : products) {
    const Case m = MakeCase(p.k);
    for (uint64_t seed : kSeeds) EXPECT_THAT(Multiplied(p, m, MmaKernel(p), seed), testing::ElementsAreArray(m.want)) << p.intrinsic;
  }
}

TEST(Mma, AWrongLayoutGivesWrongNumbers) {
  const Product p{"mma.m16n8k16.row.col.f32.f32", 16, 2, "<2 x half>"};
  const Case m = MakeCase(p.k);
  EXPECT_NE(Multiplied(p, m, MmaKernel(p, {0, 2, 1, 3}), 0), m.want);
}

// tf32 has 10 bits of mantissa: what lies below them doesn't count.
TEST(Mma, Tf32ReadsNineteenBits) {
  const Product p{"mma.m16n8k8.row.col.tf32", 8, 4, "i32"};
  Case m = MakeCase(p.k);
  for (float& v : m.a) v += v == 0 ? 0 : std::ldexp(v, -12);
  EXPECT_THAT(Multiplied(p, m, MmaKernel(p), 0), testing::ElementsAreArray(m.want));
}

// Eight rows of 8 halves each in shared memory; lane l gets elements 2 (l % 4) and one more of row l / 4, or of the column.
TEST(Mma, LoadMatrix) {
  constexpr char kText[] = R"(
@s = internal addrspace(3) global [64 x i16] undef, align 16
define ptx_kernel void @load(ptr addrspace(1) %out) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %t2 = mul i32 %t, 2
  %n = add i32 %t2, 1
  %x = trunc i32 %t2 to i16
  %y = trunc i32 %n to i16
  %p = getelementptr i16, ptr addrspace(3) @s, i32 %t2
  %q = getelementptr i16, ptr addrspace(3) @s, i32 %n
  store i16 %x, ptr addrspace(3) %p
  store i16 %y, ptr addrspace(3) %q
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  %row = and i32 %t, 7
  %r8 = mul i32 %row, 8
  %a = getelementptr i16, ptr addrspace(3) @s, i32 %r8
  %v = call i32 @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x1@@.b16.p3(ptr addrspace(3) %a)
  %o = getelementptr i32, ptr addrspace(1) %out, i32 %t
  store i32 %v, ptr addrspace(1) %o
  ret void
}
declare i32 @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x1@@.b16.p3(ptr addrspace(3))
)";
  for (const bool transposed : {false, true}) {
    std::string text = kText;
    for (size_t at; (at = text.find("@@")) != std::string::npos;) text.replace(at, 2, transposed ? ".trans" : "");
    const auto module = MustLoad(text);
    Array<uint32_t> out(32);
    ASSERT_THAT(LaunchKernel(*module, "load", {.block = {32, 1, 1}}, {}, nullptr, out.data()), Ok());
    std::vector<uint32_t> want;
    for (uint32_t lane = 0; lane < 32; ++lane) {
      const uint32_t across = lane / 4, along = lane % 4 * 2;
      want.push_back(transposed ? (along * 8 + across) | ((along + 1) * 8 + across) << 16
                                : (across * 8 + along) | (across * 8 + along + 1) << 16);
    }
    EXPECT_THAT(out.Get(), testing::ElementsAreArray(want));
  }
}

// One warp of 16 lanes has no matrix product.
TEST(Mma, NeedsAWholeWarp) {
  const Product p{"mma.m16n8k16.row.col.f32.f32", 16, 2, "<2 x half>"};
  const Case m = MakeCase(p.k);
  const auto module = MustLoad(MmaKernel(p));
  Array<uint8_t> a(Bytes(m.a, p)), b(Bytes(m.b_transposed, p));
  Array<float> c(m.c), d(m.c.size());
  EXPECT_THAT(LaunchKernel(*module, "mma", {.block = {16, 1, 1}}, {}, nullptr, a.data(), b.data(), c.data(), d.data()),
              Fails(absl::StatusCode::kFailedPrecondition, {"bad mask: matrix product"}));
}

TEST(HostMath, RoundsTo16Bits) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float f = HalfToFloat(half);
    if (!std::isnan(f)) {
      EXPECT_EQ(DoubleToHalf(f), half) << bits;
    }
    const float b = std::bit_cast<float>(bits << 16);
    if (!std::isnan(b)) {
      EXPECT_EQ(DoubleToBfloat(b), half) << bits;
    }
  }
  EXPECT_EQ(DoubleToHalf(65519.999), 0x7bff);
  EXPECT_EQ(DoubleToHalf(65520), 0x7c00);
  EXPECT_EQ(DoubleToHalf(1 + std::ldexp(1.0, -11)), 0x3c00);  // a tie, to even
  EXPECT_EQ(DoubleToHalf(1 + 3 * std::ldexp(1.0, -11)), 0x3c02);
  EXPECT_EQ(DoubleToHalf(1 + std::ldexp(1.0, -11) + std::ldexp(1.0, -40)), 0x3c01);
  EXPECT_EQ(DoubleToHalf(std::ldexp(1.0, -25)), 0);
  EXPECT_EQ(DoubleToHalf(std::ldexp(1.5, -25)), 1);
  EXPECT_EQ(DoubleToBfloat(1 + std::ldexp(1.0, -8) + std::ldexp(1.0, -40)), 0x3f81);
  EXPECT_EQ(DoubleToBfloat(std::numeric_limits<float>::max()), 0x7f80);
}

}  // namespace
}  // namespace tenon::gpu
