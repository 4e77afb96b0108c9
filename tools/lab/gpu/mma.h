// The matrix product of one warp, mma.sync.m16n8kK.row.col: D = A * B + C, A of 16 x k, B of k x 8, C and D of 16 x 8, each spread over
// the warp's lanes as the PTX ISA says (section "Matrix Fragments for mma.m16n8k16" and its neighbours).
//
// Products are exact and summed in double, C last; the sum is rounded once. Real hardware rounds otherwise in the last bits.
#pragma once

#include <cstdint>
#include <span>

namespace tenon::gpu {

enum class MmaType : uint8_t { kF16, kBf16, kTf32 };

struct MmaShape {
  MmaType type = MmaType::kF16;  // of A and B
  int k = 16;
  bool f16_result = false;  // of C and D; else f32
  bool operator==(const MmaShape&) const = default;

  // In registers of 32 bits, of one lane.
  int a_registers() const { return type == MmaType::kTf32 ? k / 2 : k / 4; }
  int b_registers() const { return a_registers() / 2; }
  int c_registers() const { return f16_result ? 2 : 4; }
  uint32_t Encode() const { return static_cast<uint32_t>(type) | static_cast<uint32_t>(k) << 8 | (f16_result ? 1u << 16 : 0); }
  static MmaShape Decode(uint32_t code) {
    return {static_cast<MmaType>(code & 255), static_cast<int>(code >> 8 & 255), (code >> 16 & 1) != 0};
  }
};

// in[lane]: the lane's registers of A, then of B, then of C. out[lane]: those of D.
void MultiplyFragments(const MmaShape& shape, std::span<const uint32_t* const, 32> in, std::span<uint32_t* const, 32> out);

}  // namespace tenon::gpu
