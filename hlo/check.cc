#include "hlo/check.h"

#include "absl/strings/str_cat.h"

namespace tenon {

void CheckFailed(const char* condition, const char* file, int line, const std::string& message) {
  throw InternalError(absl::StrCat("tenon internal error: ", message, message.empty() ? "" : ": ",
                                   "check failed: ", condition, " (", file, ":", line, ")"));
}

}  // namespace tenon
