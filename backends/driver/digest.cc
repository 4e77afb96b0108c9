#include "backends/driver/digest.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SHA256.h"

namespace tenon {

std::string Digest(std::string_view bytes) {
  const auto hash = llvm::SHA256::hash({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  return llvm::toHex(hash, /*LowerCase=*/true);
}

}  // namespace tenon
