#include "tools/lab/gpu/mma.h"

#include <array>
#include <bit>

#include "tools/lab/gpu/host_math.h"

namespace tenon::gpu {
namespace {

// Element i of a lane's fragment.
struct Place {
  int row, column;
};
Place InA(const MmaShape& shape, int lane, int i) {
  const int group = lane / 4, in_group = lane % 4;
  if (shape.type == MmaType::kTf32) return {group + 8 * (i & 1), in_group + 4 * (i / 2)};
  return {group + 8 * (i / 2 & 1), in_group * 2 + (i & 1) + 8 * (i / 4)};
}
Place InB(const MmaShape& shape, int lane, int i) {
  const int group = lane / 4, in_group = lane % 4;
  if (shape.type == MmaType::kTf32) return {in_group + 4 * i, group};
  return {in_group * 2 + (i & 1) + 8 * (i / 2), group};
}
Place InC(int lane, int i) { return {lane / 4 + 8 * (i / 2), lane % 4 * 2 + (i & 1)}; }

// Element i of consecutive registers.
double Element(MmaType type, const uint32_t* registers, int i) {
  if (type == MmaType::kTf32) return std::bit_cast<float>(registers[i] & ~0x1fffu);  // the hardware reads 19 bits
  const auto half = static_cast<uint16_t>(registers[i / 2] >> (i % 2 * 16));
  return type == MmaType::kF16 ? HalfToFloat(half) : std::bit_cast<float>(uint32_t{half} << 16);
}

}  // namespace

void MultiplyFragments(const MmaShape& shape, std::span<const uint32_t* const, 32> in, std::span<uint32_t* const, 32> out) {
  std::array<std::array<double, 16>, 16> a{};
  std::array<std::array<double, 8>, 16> b{};
  const int per_register = shape.type == MmaType::kTf32 ? 1 : 2;
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < shape.a_registers() * per_register; ++i) {
      const Place p = InA(shape, lane, i);
      a[p.row][p.column] = Element(shape.type, in[lane], i);
    }
    for (int i = 0; i < shape.b_registers() * per_register; ++i) {
      const Place p = InB(shape, lane, i);
      b[p.row][p.column] = Element(shape.type, in[lane] + shape.a_registers(), i);
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    const uint32_t* c = in[lane] + shape.a_registers() + shape.b_registers();
    uint32_t packed = 0;
    for (int i = 0; i < 4; ++i) {
      const Place p = InC(lane, i);
      double sum = 0;
      for (int k = 0; k < shape.k; ++k) sum += a[p.row][k] * b[k][p.column];
      sum += shape.f16_result ? Element(MmaType::kF16, c, i) : std::bit_cast<float>(c[i]);
      if (!shape.f16_result) {
        out[lane][i] = std::bit_cast<uint32_t>(static_cast<float>(sum));
        continue;
      }
      packed = i % 2 == 0 ? DoubleToHalf(sum) : packed | uint32_t{DoubleToHalf(sum)} << 16;
      out[lane][i / 2] = packed;
    }
  }
}

}  // namespace tenon::gpu
