#include "backends/gpu/plan/gpu_model.h"

#include <algorithm>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace tenon::gpu {

absl::Span<const GpuModel> GpuModels() {
  constexpr int64_t kKib = 1 << 10, kMib = 1 << 20;
  static const auto* models = new std::vector<GpuModel>{
      {.name = "sm_75",
       .product = "T4",
       .ptx = "+ptx63",
       .sms = 40,
       .threads_per_sm = 1024,
       .blocks_per_sm = 16,
       .shared_per_sm = 64 * kKib,
       .shared_opt_in = 64 * kKib,
       .l2_bytes = 4 * kMib,
       .bytes_per_ns = 320,
       .f32_flops_per_ns = 8100,
       .bf16_flops_per_ns = 0},
      {.name = "sm_80",
       .product = "A100 80GB",
       .ptx = "+ptx70",
       .sms = 108,
       .shared_per_sm = 164 * kKib,
       .shared_opt_in = 163 * kKib,
       .l2_bytes = 40 * kMib,
       .bytes_per_ns = 2039,
       .f32_flops_per_ns = 19500,
       .bf16_flops_per_ns = 312000},
      {.name = "sm_86",
       .product = "RTX 3090",
       .ptx = "+ptx71",
       .sms = 82,
       .threads_per_sm = 1536,
       .blocks_per_sm = 16,
       .shared_per_sm = 100 * kKib,
       .shared_opt_in = 99 * kKib,
       .l2_bytes = 6 * kMib,
       .bytes_per_ns = 936,
       .f32_flops_per_ns = 35600,
       .bf16_flops_per_ns = 71000},
      {.name = "sm_89",
       .product = "L40S",
       .ptx = "+ptx78",
       .sms = 142,
       .threads_per_sm = 1536,
       .blocks_per_sm = 24,
       .shared_per_sm = 100 * kKib,
       .shared_opt_in = 99 * kKib,
       .l2_bytes = 96 * kMib,
       .bytes_per_ns = 864,
       .f32_flops_per_ns = 91600,
       .bf16_flops_per_ns = 362000},
      {.name = "sm_90",
       .product = "H100 SXM",
       .ptx = "+ptx78",
       .sms = 132,
       .shared_per_sm = 228 * kKib,
       .shared_opt_in = 227 * kKib,
       .l2_bytes = 50 * kMib,
       .bytes_per_ns = 3350,
       .f32_flops_per_ns = 66900,
       .bf16_flops_per_ns = 989000},
      {.name = "sm_100",
       .product = "B200",
       .ptx = "+ptx86",
       .sms = 148,
       .shared_per_sm = 228 * kKib,
       .shared_opt_in = 227 * kKib,
       .l2_bytes = 126 * kMib,
       .bytes_per_ns = 8000,
       .f32_flops_per_ns = 75000,
       .bf16_flops_per_ns = 2250000},
      {.name = "sm_120",
       .product = "RTX 5090",
       .ptx = "+ptx87",
       .sms = 170,
       .threads_per_sm = 1536,
       .blocks_per_sm = 24,
       .shared_per_sm = 100 * kKib,
       .shared_opt_in = 99 * kKib,
       .l2_bytes = 96 * kMib,
       .bytes_per_ns = 1792,
       .f32_flops_per_ns = 104800,
       .bf16_flops_per_ns = 209500},
  };
  return *models;
}

std::string GpuModel::Key() const {
  return absl::StrCat(name, "|", ptx, "|", sms, "|", threads_per_sm, "|", blocks_per_sm, "|", registers_per_sm, "|", shared_per_sm, "|",
                      shared_per_block, "|", shared_opt_in, "|", l2_bytes, "|", bytes_per_ns, "|", f32_flops_per_ns, "|",
                      bf16_flops_per_ns);
}

namespace {

absl::Status Override(GpuModel* model, std::string_view setting) {
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(absl::string_view(setting.data(), setting.size()), absl::MaxSplits('=', 1));
  int value = 0;
  if (!absl::SimpleAtoi(parts.second, &value) || value < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("GPU ", model->name, ": wanted a positive number of ", parts.first, ", got \"", parts.second, "\""));
  }
  if (parts.first == "sms")
    model->sms = value;
  else if (parts.first == "threads_per_sm")
    model->threads_per_sm = value;
  else if (parts.first == "shared_per_block")
    model->shared_per_block = model->shared_opt_in = value;
  else if (parts.first == "l2_bytes")
    model->l2_bytes = value;
  else
    return absl::InvalidArgumentError(
        absl::StrCat("GPU ", model->name, ": wanted sms, threads_per_sm, shared_per_block or l2_bytes, got \"", parts.first, "\""));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GpuModel> FindGpuModel(std::string_view name) {
  const std::vector<std::string> parts = absl::StrSplit(absl::string_view(name.data(), name.size()), ',');
  std::vector<std::string> known;
  for (const GpuModel& model : GpuModels()) {
    known.push_back(model.name);
    if (model.name != parts[0] && model.name != absl::StrCat("sm_", parts[0])) continue;
    GpuModel found = model;
    for (size_t i = 1; i < parts.size(); ++i) {
      if (const absl::Status s = Override(&found, parts[i]); !s.ok()) return s;
    }
    return found;
  }
  return absl::InvalidArgumentError(absl::StrCat("GPU: wanted one of ", absl::StrJoin(known, ", "), ", got \"", parts[0], "\""));
}

int BlocksPerSm(const GpuModel& model, int threads, int registers, int64_t shared_bytes) {
  const int warps = (threads + 31) / 32;
  // Registers are given by the warp, in units of 256 (CUDA programming guide, occupancy).
  const int per_warp = (std::max(registers, 1) * 32 + 255) / 256 * 256;
  int blocks = std::min(model.blocks_per_sm, model.threads_per_sm / (warps * 32));
  blocks = std::min(blocks, model.registers_per_sm / (per_warp * warps));
  if (shared_bytes > 0) blocks = static_cast<int>(std::min<int64_t>(blocks, model.shared_per_sm / (shared_bytes + 1024)));
  return std::max(blocks, 0);
}

}  // namespace tenon::gpu
