#include "backends/gpu/emit/image.h"

#include <cstring>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace tenon::gpu {
namespace {

constexpr std::string_view kMagic = "tenon-gpu-1\n";

class Writer {
 public:
  explicit Writer(std::vector<uint8_t>* out) : out_(out) {}
  void Number(uint64_t n) {
    for (int i = 0; i < 8; ++i) out_->push_back(static_cast<uint8_t>(n >> (8 * i)));
  }
  void Text(std::string_view text) {
    Number(text.size());
    out_->insert(out_->end(), text.begin(), text.end());
  }

 private:
  std::vector<uint8_t>* out_;
};

// What is missing reads as 0 or nothing, and ok() is false from then on.
class Reader {
 public:
  explicit Reader(std::span<const uint8_t> bytes) : rest_(bytes) {}
  uint64_t Number() {
    if (!Has(8)) return 0;
    uint64_t n = 0;
    for (size_t i = 0; i < 8; ++i) n |= uint64_t{rest_[i]} << (8 * i);
    rest_ = rest_.subspan(8);
    return n;
  }
  std::string Text() {
    const uint64_t size = Number();
    if (!Has(size)) return "";
    std::string text(reinterpret_cast<const char*>(rest_.data()), size);
    rest_ = rest_.subspan(size);
    return text;
  }
  bool ok() const { return ok_; }
  bool done() const { return rest_.empty(); }

 private:
  bool Has(uint64_t size) { return ok_ = ok_ && size <= rest_.size(); }
  std::span<const uint8_t> rest_;
  bool ok_ = true;
};

}  // namespace

std::vector<uint8_t> Serialize(const Image& image) {
  std::vector<uint8_t> bytes(kMagic.begin(), kMagic.end());
  Writer w(&bytes);
  w.Text(image.architecture);
  w.Number(image.bitcode ? 1 : 0);
  w.Number(image.modules.size());
  for (const ImageModule& m : image.modules) {
    w.Text(m.code);
    w.Number(m.kernels.size());
    for (const ImageKernel& k : m.kernels) {
      w.Text(k.symbol);
      w.Number(static_cast<uint64_t>(k.pointers));
      w.Number(static_cast<uint64_t>(k.args));
    }
  }
  return bytes;
}

absl::StatusOr<Image> ParseImage(std::span<const uint8_t> bytes) {
  if (bytes.size() < kMagic.size() || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    return absl::DataLossError("no image of GPU code");
  }
  Reader r(bytes.subspan(kMagic.size()));
  Image image;
  image.architecture = r.Text();
  image.bitcode = r.Number() != 0;
  const uint64_t modules = r.Number();
  for (uint64_t m = 0; m < modules && r.ok(); ++m) {
    ImageModule module{.code = r.Text()};
    const uint64_t kernels = r.Number();
    for (uint64_t k = 0; k < kernels && r.ok(); ++k) {
      ImageKernel kernel{.symbol = r.Text()};
      kernel.pointers = static_cast<int64_t>(r.Number());
      kernel.args = static_cast<int64_t>(r.Number());
      module.kernels.push_back(std::move(kernel));
    }
    image.modules.push_back(std::move(module));
  }
  if (!r.ok() || !r.done()) return absl::DataLossError("an image of GPU code that is cut short, or has more behind it");
  return image;
}

}  // namespace tenon::gpu
