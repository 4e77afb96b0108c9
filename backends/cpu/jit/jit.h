// Objects for this machine -> callable kernels. The only place that owns executable memory.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/codegen/llvm/compile_module.h"
#include "backends/cpu/plan/target.h"
#include "runtime/execute/code_loader.h"

namespace tenon {

// What makes an object of a module for this machine: the caller adds `emit` and what it wants to see. The object imports only symbols of
// runtime/imports.def, else kInternal naming the symbol and the kernels that want it.
ModuleRequest ObjectRequest(const CpuTarget& target, std::string name);

// A code image is a sequence of objects, each behind its size as a little-endian u64: what Program::object holds.
void AppendObject(std::vector<uint8_t>* image, std::span<const uint8_t> object);
absl::StatusOr<std::vector<std::span<const uint8_t>>> SplitImage(std::span<const uint8_t> image);

// Symbols of imports.def, resolved in this process (nullptr if absent).
std::vector<std::pair<std::string, void*>> ResolvedImports();

}  // namespace tenon
