// A module for each kind of GPU kernel, at any size and type: for tests on the emulator and for the runner on a GPU.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/types/span.h"

namespace tenon::gpu {

struct KernelKind {
  const char* name;
  const char* body;  // of the entry, with TYPE, ROWS, COLUMNS; may begin with regions of its own, up to a line "ENTRY"
  const char* plan;  // of some size: a piece of its text
  const char* small = nullptr;  // a model (ParseGpuModel) more, for which rows of some hundred elements are long
};
absl::Span<const KernelKind> KernelKinds();
const KernelKind& FindKernelKind(std::string_view name);

// Whether its kernel is the GPU's at that type: integers have no exponentials, complex numbers no maximum and no order.
bool TakesType(const KernelKind& kind, std::string_view type);
// A module of HLO.
std::string KindText(const KernelKind& kind, const std::string& type, int64_t rows, int64_t columns);

}  // namespace tenon::gpu
