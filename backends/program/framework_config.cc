#include "backends/program/framework_config.h"

#include "absl/strings/str_cat.h"

namespace tenon {

absl::StatusOr<const FrameworkCallSite*> CallSiteOf(const Instruction& op, FrameworkCallSite* read) {
  if (const FrameworkCallSite* site = op.framework_call()) return site;
  absl::StatusOr<FrameworkCallSite> parsed = ReadCallSite(op.backend_config());
  if (parsed.ok()) {
    *read = *std::move(parsed);
    return read;
  }
  const absl::string_view why = parsed.status().message();
  return absl::InvalidArgumentError(absl::StrCat(op.name(), ": wanted backend_config={\"args\":\"(...)\", ...}, got \"",
                                                 op.backend_config(), "\"", why.empty() ? "" : absl::StrCat(" (", why, ")")));
}

}  // namespace tenon
