#include "backends/program/framework_config.h"

#include "absl/strings/str_cat.h"
#include "hlo/own_calls.h"

namespace tenon {

absl::StatusOr<const FrameworkCallSite*> CallSiteOf(const Instruction& op, FrameworkCallSite* read) {
  const FrameworkCallSite* site = op.framework_call();
  if (site == nullptr) {
    absl::StatusOr<FrameworkCallSite> parsed = ReadCallSite(op.backend_config());
    if (!parsed.ok()) {
      const absl::string_view why = parsed.status().message();
      return absl::InvalidArgumentError(absl::StrCat(op.name(), ": wanted backend_config={\"args\":\"(...)\", ...}, got \"",
                                                     op.backend_config(), "\"", why.empty() ? "" : absl::StrCat(" (", why, ")")));
    }
    *read = *std::move(parsed);
    site = read;
  }
  if (site->writes.size() != WrittenOperands(op).size()) {
    return absl::InvalidArgumentError(absl::StrCat(op.name(), ": \"writes\" names a leaf or an operand that the call doesn't have"));
  }
  return site;
}

}  // namespace tenon
