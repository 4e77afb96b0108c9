#include "backends/contract/digest.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/BLAKE3.h"

namespace tenon {

std::string Digest(std::string_view bytes) {
  const auto hash = llvm::BLAKE3::hash<32>({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  return std::string(reinterpret_cast<const char*>(hash.data()), hash.size());
}

std::string HexDigest(std::string_view bytes) { return llvm::toHex(Digest(bytes), /*LowerCase=*/true); }

}  // namespace tenon
