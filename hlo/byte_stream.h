// ByteStream: values written one behind the other so that no two sequences of values give the same bytes, if what is written follows from
// what was written before it. What hashes are made of where things are compared by their hash alone: graphs, modules, kernels.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

#include "hlo/dim/dim.h"
#include "hlo/framework_call.h"

namespace tenon {

class Literal;
class Shape;

class ByteStream {
 public:
  // `digest`: stands for data of more than kLongData bytes, so that it isn't copied. None: it is.
  using Digest = std::string (*)(std::string_view);
  static constexpr size_t kLongData = 1024;
  explicit ByteStream(Digest digest = nullptr) : digest_(digest) {}

  void Number(int64_t value) {  // small ones are a byte
    uint64_t rest = (static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63);
    for (; rest >= 0x80; rest >>= 7) bytes_.push_back(static_cast<char>(rest | 0x80));
    bytes_.push_back(static_cast<char>(rest));
  }
  void Number(size_t value) { Number(static_cast<int64_t>(value)); }
  void Number(int value) { Number(static_cast<int64_t>(value)); }
  template <typename E>
    requires std::is_enum_v<E>
  void Enum(E value) {
    Number(static_cast<int64_t>(value));
  }
  void Bool(bool value) { bytes_.push_back(value ? 1 : 0); }
  void Real(double value) {  // bit by bit: 0 and -0 differ, and NaNs
    const auto bits = std::bit_cast<uint64_t>(value);
    bytes_.append(reinterpret_cast<const char*>(&bits), sizeof(bits));
  }
  void Text(std::string_view text) {
    Number(text.size());
    bytes_.append(text);
  }
  void Data(std::string_view data) {
    const bool is_long = digest_ != nullptr && data.size() > kLongData;
    Bool(is_long);
    Text(is_long ? std::string_view(digest_(data)) : data);
  }

  void Add(Dim dim);
  template <typename Dims>
  void AddDims(const Dims& dims) {
    Number(dims.size());
    for (Dim d : dims) Add(d);
  }
  template <typename Numbers>
  void AddNumbers(const Numbers& numbers) {
    Number(numbers.size());
    for (int64_t n : numbers) Number(n);
  }
  void Add(const Shape& shape, bool with_layout);
  void Add(const Literal& literal);
  void Add(const FrameworkArg& arg);
  void Add(const FrameworkCallSite& site);

  const std::string& bytes() const { return bytes_; }

 private:
  Digest digest_;
  std::string bytes_;
};

}  // namespace tenon
