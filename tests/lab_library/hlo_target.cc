// libtenon_lab: libtenon's C functions with the emulated GPU for torch_tenon.hlo, and where a module's instructions went.
#include "torch_plugin/libtenon/hlo_target.h"

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hlo/text/text.h"
#include "tools/lab/gpu/emulated_target.h"
#include "tools/lab/gpu/placement.h"
#include "tools/lab/spaces.h"

namespace tenon {
namespace {

// Of this thread's last module for a device: each of its compiles, as it stood behind the last pass. (Sizes that are known at run time
// only lead to several.)
thread_local std::vector<std::string> compiled;

}  // namespace

absl::Status UseTarget(const std::string& target, Module& module, CompileOptions* options, const TenonHost** host) {
  TENON_ASSIGN_OR_RETURN(std::shared_ptr<const Target> found, gpu::MakeEmulatedGpu(target));
  lab::MoveInside(module, found->facts().space);
  options->targets.push_back(std::move(found));
  *host = gpu::EmulatedHost(*host);
  compiled.clear();
  options->stages = {.take = [](const Stage& stage) {
                       if (stage.file.starts_with("00.")) compiled.emplace_back();
                       if (!compiled.empty()) compiled.back() = stage.text;
                     },
                     .wanted = 1u << static_cast<int>(StageKind::kHlo)};
  return absl::OkStatus();
}

}  // namespace tenon

extern "C" {

// JSON: {"device": n, "host": n, "host_opcodes": {"sort": n}} of this thread's last module for a device. Released by tenon_string_free.
TENON_API char* tenon_lab_placement(void) {
  tenon::gpu::Placement sum;
  for (const std::string& text : tenon::compiled) {
    const auto module = tenon::ParseModule(text);
    if (module.ok()) sum += tenon::gpu::PlacementOf(**module);
  }
  return strdup(sum.ToJson().c_str());
}

}  // extern "C"
