#include "torch_plugin/libtenon/repro.h"

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace tenon {
namespace {

std::string DefaultDir() {
  if (const char* dir = std::getenv("TENON_REPRO_DIR"); dir != nullptr && *dir != 0) return dir;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != 0) {
    return absl::StrCat(cache, "/tenon/repro");
  }
  const char* home = std::getenv("HOME");
  return absl::StrCat(home != nullptr ? home : "/tmp", "/.cache/tenon/repro");
}

// FNV-1a: the name must be the same in every process.
uint64_t ContentHash(std::string_view text) {
  uint64_t hash = 14695981039346656037u;
  for (unsigned char c : text) hash = (hash ^ c) * 1099511628211u;
  return hash;
}

std::string FileName(std::string_view name) {
  std::string safe(name.substr(0, 80));
  for (char& c : safe) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '_') c = '_';
  }
  return safe.empty() ? "graph" : safe;
}

bool Write(const std::string& path, std::string_view error, std::string_view text) {
  std::ofstream file(path, std::ios::trunc);
  file << "// " << absl::StrReplaceAll(std::string(error), {{"\n", "\n// "}}) << "\n" << text;
  return static_cast<bool>(file.flush());
}

}  // namespace

std::string SaveRepro(std::string dir, std::string_view name, std::string_view error,
                      std::string_view aten, std::string_view hlo) {
  if (dir.empty()) dir = DefaultDir();
  std::error_code ignored;
  std::filesystem::create_directories(dir, ignored);
  const std::string stem =
      absl::StrCat(dir, "/", FileName(name), "-", absl::Hex(ContentHash(aten), absl::kZeroPad16));
  if (!hlo.empty()) Write(absl::StrCat(stem, ".hlo"), error, hlo);
  const std::string path = absl::StrCat(stem, ".aten");
  return Write(path, error, aten) ? path : "";
}

}  // namespace tenon
