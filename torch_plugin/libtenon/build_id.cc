#include "torch_plugin/libtenon/build_id.h"

#include "absl/strings/str_cat.h"
#include "runtime/build_id.h"
#include "runtime/tenon_c.h"

namespace tenon {

const std::string& BuildId() {
  static const auto* id =
      new std::string(absl::StrCat("tenon-", TENON_ABI_VERSION, "-", BuildIdOf(reinterpret_cast<const void*>(&BuildId))));
  return *id;
}

}  // namespace tenon
