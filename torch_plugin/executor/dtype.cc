#include "torch_plugin/executor/dtype.h"

#include <array>
#include <utility>

#include "runtime/tenon_c.h"

namespace tenon::torch_host {
namespace {

using c10::ScalarType;

constexpr std::pair<ScalarType, const char*> kPairs[] = {
    {ScalarType::Bool, "pred"},
    {ScalarType::Char, "s8"},
    {ScalarType::Short, "s16"},
    {ScalarType::Int, "s32"},
    {ScalarType::Long, "s64"},
    {ScalarType::Byte, "u8"},
    {ScalarType::UInt16, "u16"},
    {ScalarType::UInt32, "u32"},
    {ScalarType::UInt64, "u64"},
    {ScalarType::Half, "f16"},
    {ScalarType::BFloat16, "bf16"},
    {ScalarType::Float, "f32"},
    {ScalarType::Double, "f64"},
    {ScalarType::ComplexFloat, "c64"},
    {ScalarType::ComplexDouble, "c128"},
    {ScalarType::Float8_e5m2, "f8e5m2"},
    {ScalarType::Float8_e4m3fn, "f8e4m3fn"},
    {ScalarType::Float8_e5m2fnuz, "f8e5m2fnuz"},
    {ScalarType::Float8_e4m3fnuz, "f8e4m3fnuz"},
    {ScalarType::Float8_e8m0fnu, "f8e8m0fnu"},
};

struct Tables {
  std::array<int32_t, 256> to_tenon;
  std::array<int32_t, 256> to_torch;
  Tables() {
    to_tenon.fill(-1);
    to_torch.fill(-1);
    for (const auto& [type, name] : kPairs) {
      const int32_t dtype = tenon_dtype_from_name(name);
      if (dtype < 0) continue;
      to_tenon[static_cast<uint8_t>(type)] = dtype;
      to_torch[dtype] = static_cast<int32_t>(type);
    }
  }
};
const Tables& TheTables() {
  static const Tables tables;
  return tables;
}

}  // namespace

int32_t FromTorch(ScalarType type) { return TheTables().to_tenon[static_cast<uint8_t>(type)]; }

std::optional<ScalarType> ToTorch(int32_t dtype) {
  if (dtype < 0 || dtype > 255 || TheTables().to_torch[dtype] < 0) return std::nullopt;
  return static_cast<ScalarType>(TheTables().to_torch[dtype]);
}

}  // namespace tenon::torch_host
