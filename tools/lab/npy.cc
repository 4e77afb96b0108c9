#include "tools/lab/npy.h"

#include <zlib.h>

#include <cstring>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tenon {
namespace {

absl::Status Bad(std::string_view what) {
  return absl::InvalidArgumentError(absl::string_view(what.data(), what.size()));
}

template <typename T>
T Load(std::string_view bytes, size_t at) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

struct Header {
  std::string descr;
  bool fortran = false;
  std::vector<int64_t> dims;
  size_t data = 0;
};

// The text between `from` and `to` behind the key.
std::string_view Field(std::string_view dict, std::string_view key, char from, char to) {
  size_t at = dict.find(key);
  if (at == std::string_view::npos) return {};
  at = dict.find(':', at);
  const size_t begin = dict.find(from, at);
  if (at == std::string_view::npos || begin == std::string_view::npos) return {};
  const size_t end = dict.find(to, begin + 1);
  return end == std::string_view::npos ? std::string_view() : dict.substr(begin + 1, end - begin - 1);
}

// numpy.lib.format: magic, version, header length, a Python dict.
absl::StatusOr<Header> ParseHeader(std::string_view bytes) {
  if (bytes.size() < 12 || bytes.substr(0, 6) != "\x93NUMPY") return Bad("not a .npy file");
  const bool old = bytes[6] == 1;
  const size_t start = old ? 10 : 12;
  const size_t length = old ? Load<uint16_t>(bytes, 8) : Load<uint32_t>(bytes, 8);
  if (length > bytes.size() - start) return Bad(".npy header is cut off");
  const std::string_view dict = bytes.substr(start, length);
  Header h;
  h.data = start + length;
  h.descr = std::string(Field(dict, "'descr'", '\'', '\''));
  h.fortran = dict.find("'fortran_order': True") != std::string_view::npos;
  const std::string_view shape = Field(dict, "'shape'", '(', ')');
  int64_t value = 0;
  bool digits = false;
  for (size_t i = 0; i <= shape.size(); ++i) {
    const char c = i < shape.size() ? shape[i] : ',';
    if (c >= '0' && c <= '9') {
      if (value > (int64_t{1} << 48)) return Bad(".npy dimensions are out of range");
      value = value * 10 + (c - '0');
      digits = true;
    } else if (digits) {
      h.dims.push_back(value);
      value = 0;
      digits = false;
    }
  }
  if (h.descr.size() < 3 || h.descr[0] == '>') return Bad(absl::StrCat("unsupported .npy dtype ", h.descr));
  return h;
}

// NumPy's code of a type it has; nullopt: raw bits.
std::optional<std::string> NativeDescr(PrimitiveType t) {
  switch (t) {
    case PrimitiveType::kPred: return "|b1";
    case PrimitiveType::kF16: return "<f2";
    case PrimitiveType::kF32: return "<f4";
    case PrimitiveType::kF64: return "<f8";
    case PrimitiveType::kC64: return "<c8";
    case PrimitiveType::kC128: return "<c16";
    default: break;
  }
  if (!IsIntegral(t)) return std::nullopt;
  const int64_t bytes = ByteWidth(t);
  return absl::StrCat(bytes == 1 ? "|" : "<", IsSigned(t) ? "i" : "u", bytes);
}

std::string Descr(PrimitiveType t) {
  return NativeDescr(t).value_or(ByteWidth(t) == 1 ? "|u1" : absl::StrCat("<u", ByteWidth(t)));
}

bool Accepts(PrimitiveType t, const std::string& descr) {
  const std::string native = Descr(t);
  if (descr.substr(1) == native.substr(1)) return true;
  const bool raw = !NativeDescr(t).has_value();
  int64_t width = 0;
  return raw && (descr[1] == 'V' || descr[1] == 'u' || descr[1] == 'i') &&
         absl::SimpleAtoi(descr.substr(2), &width) && width == ByteWidth(t);
}

absl::StatusOr<std::string> Inflate(std::string_view packed, size_t size) {
  std::string out(size, '\0');
  z_stream z{};
  if (inflateInit2(&z, -MAX_WBITS) != Z_OK) return Bad("zlib refuses to start");
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  z.avail_in = static_cast<uInt>(packed.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  const int code = inflate(&z, Z_FINISH);
  inflateEnd(&z);
  if (code != Z_STREAM_END || z.total_out != size) return Bad("a zip member is corrupt");
  return out;
}

template <typename T>
void Append(std::string* out, T value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(T));
}

}  // namespace

absl::StatusOr<Literal> ParseNpy(std::string_view bytes, const Shape& shape) {
  absl::StatusOr<Header> h = ParseHeader(bytes);
  if (!h.ok()) return h.status();
  if (!shape.is_array() || !shape.is_static()) return Bad(absl::StrCat("a file can't hold ", shape.ToString()));
  if (h->dims != shape.constant_dims() || !Accepts(shape.element_type(), h->descr)) {
    return Bad(absl::StrCat("wanted ", shape.ToString(), " (", Descr(shape.element_type()), "), got ", h->descr, "[",
                            absl::StrJoin(h->dims, ","), "]"));
  }
  Literal literal(Shape::Array(shape.element_type(), h->dims));
  const int64_t width = ByteWidth(shape.element_type()), n = literal.num_elements();
  if (static_cast<int64_t>(bytes.size() - h->data) < n * width) return Bad(".npy data is cut off");
  if (n == 0) return literal;
  const char* from = bytes.data() + h->data;
  char* to = reinterpret_cast<char*>(literal.mutable_bytes());
  if (!h->fortran) {
    std::memcpy(to, from, n * width);
    return literal;
  }
  std::vector<int64_t> index(h->dims.size(), 0);
  for (int64_t i = 0; i < n; ++i) {  // i counts in column-major order
    int64_t row = 0;
    for (size_t d = 0; d < index.size(); ++d) row = row * h->dims[d] + index[d];
    std::memcpy(to + row * width, from + i * width, width);
    for (size_t d = 0; d < index.size() && ++index[d] == h->dims[d]; ++d) index[d] = 0;
  }
  return literal;
}

std::string WriteNpy(const Literal& literal) {
  const std::vector<int64_t> dims = literal.shape().constant_dims();
  std::string dict = absl::StrCat("{'descr': '", Descr(literal.type()), "', 'fortran_order': False, 'shape': (",
                                  absl::StrJoin(dims, ", "), dims.size() == 1 ? ",), }" : "), }");
  dict.append(63 - (10 + dict.size()) % 64, ' ').push_back('\n');
  std::string out("\x93NUMPY\x01\0", 8);
  Append(&out, static_cast<uint16_t>(dict.size()));
  out += dict;
  out.append(reinterpret_cast<const char*>(literal.bytes()), literal.size_bytes());
  return out;
}

// The central directory at the end names each member, its sizes and the place of its local header (APPNOTE.TXT 4.3).
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ReadZip(std::string_view bytes) {
  const size_t end = bytes.rfind("PK\x05\x06");
  if (end == std::string_view::npos || end + 22 > bytes.size()) return Bad("not a zip file");
  const size_t count = Load<uint16_t>(bytes, end + 10);
  size_t at = Load<uint32_t>(bytes, end + 16);
  std::vector<std::pair<std::string, std::string>> members;
  for (size_t i = 0; i < count; ++i) {
    if (at + 46 > bytes.size() || bytes.substr(at, 4) != "PK\x01\x02") return Bad("the zip's directory is corrupt");
    const uint16_t method = Load<uint16_t>(bytes, at + 10), name_size = Load<uint16_t>(bytes, at + 28);
    const size_t packed = Load<uint32_t>(bytes, at + 20), size = Load<uint32_t>(bytes, at + 24);
    const size_t local = Load<uint32_t>(bytes, at + 42);
    if (at + 46 + name_size > bytes.size() || local + 30 > bytes.size()) return Bad("the zip's directory is corrupt");
    std::string name(bytes.substr(at + 46, name_size));
    if (name.ends_with(".npy")) name.resize(name.size() - 4);
    const size_t data = local + 30 + Load<uint16_t>(bytes, local + 26) + Load<uint16_t>(bytes, local + 28);
    if (data > bytes.size() || packed > bytes.size() - data || size > (size_t{1} << 32)) {
      return Bad(absl::StrCat("zip member ", name, " is cut off"));
    }
    const std::string_view raw = bytes.substr(data, packed);
    if (method == 0) {
      members.emplace_back(std::move(name), std::string(raw));
    } else if (method == 8) {
      absl::StatusOr<std::string> inflated = Inflate(raw, size);
      if (!inflated.ok()) return inflated.status();
      members.emplace_back(std::move(name), *std::move(inflated));
    } else {
      return Bad(absl::StrCat("zip member ", name, " is packed by method ", method));
    }
    at += 46 + name_size + Load<uint16_t>(bytes, at + 30) + Load<uint16_t>(bytes, at + 32);
  }
  return members;
}

std::string WriteZip(const std::vector<std::pair<std::string, std::string>>& members) {
  std::string out, directory;
  for (const auto& [stem, bytes] : members) {
    const std::string name = stem + ".npy";
    const uint32_t crc = crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size()));
    const auto offset = static_cast<uint32_t>(out.size());
    std::string common;  // version needed, flags, method, time, date, crc, sizes, name and extra lengths
    for (uint16_t v : {20, 0, 0, 0, 0x21}) Append(&common, v);
    for (uint32_t v : {crc, static_cast<uint32_t>(bytes.size()), static_cast<uint32_t>(bytes.size())}) Append(&common, v);
    for (size_t v : {name.size(), size_t{0}}) Append(&common, static_cast<uint16_t>(v));
    out.append("PK\x03\x04", 4).append(common).append(name).append(bytes);
    directory.append("PK\x01\x02\x14\0", 6).append(common);
    for (uint16_t v : {0, 0, 0}) Append(&directory, v);  // comment, disk, internal attributes
    Append(&directory, uint32_t{0});
    Append(&directory, offset);
    directory.append(name);
  }
  const auto start = static_cast<uint32_t>(out.size());
  const auto n = static_cast<uint16_t>(members.size());
  out.append(directory).append("PK\x05\x06\0\0\0\0", 8);
  Append(&out, n);
  Append(&out, n);
  Append(&out, static_cast<uint32_t>(directory.size()));
  Append(&out, start);
  Append(&out, uint16_t{0});
  return out;
}

}  // namespace tenon
