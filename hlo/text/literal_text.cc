#include "hlo/text/literal_text.h"

#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

namespace tenon::text {
namespace {

// How a float type spells NaN. `payload` mantissa bits are free where `ieee`; the other formats have one or two NaNs.
struct NanFormat {
  int mantissa;
  bool ieee;
  uint64_t positive, negative;  // the default quiet NaN of either sign
};

NanFormat NanOf(PrimitiveType t) {
  switch (t) {
    case PrimitiveType::kF64: return {52, true, 0x7ff8000000000000, 0xfff8000000000000};
    case PrimitiveType::kF32: return {23, true, 0x7fc00000, 0xffc00000};
    case PrimitiveType::kF16: return {10, true, 0x7e00, 0xfe00};
    case PrimitiveType::kBF16: return {7, true, 0x7fc0, 0xffc0};
    case PrimitiveType::kF8E5M2: return {2, true, 0x7e, 0xfe};
    case PrimitiveType::kF8E4M3: return {3, true, 0x7c, 0xfc};
    case PrimitiveType::kF8E3M4: return {4, true, 0x78, 0xf8};
    case PrimitiveType::kF8E4M3FN: return {3, false, 0x7f, 0xff};
    case PrimitiveType::kF8E8M0FNU: return {0, false, 0xff, 0xff};
    default: return {0, false, 0x80, 0x80};  // the fnuz types
  }
}

uint64_t LoadBits(const std::byte* from, int64_t width) {
  uint64_t bits = 0;
  std::memcpy(&bits, from, width);
  return bits;
}

template <typename T>
double LoadFloat(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

void StoreBits(uint64_t bits, int64_t width, std::byte* to) { std::memcpy(to, &bits, width); }

// nan, -nan, nan(0x12), -nan(0x12): writes the bits. False if it isn't a NaN of this type.
bool ParseNan(PrimitiveType t, std::string_view text, uint64_t* bits) {
  if (t == PrimitiveType::kF4E2M1FN) return false;
  const NanFormat f = NanOf(t);
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  if (!text.starts_with("nan")) return false;
  text.remove_prefix(3);
  *bits = negative ? f.negative : f.positive;
  if (text.empty()) return true;
  if (!text.starts_with("(0x") || !text.ends_with(")")) return false;
  text = text.substr(3, text.size() - 4);
  uint64_t payload = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), payload, 16);
  if (error != std::errc() || end != text.data() + text.size()) return false;
  if (!f.ieee || payload == 0 || (payload >> f.mantissa) != 0) return false;
  const uint64_t mask = (uint64_t{1} << f.mantissa) - 1;
  *bits = (*bits & ~mask) | payload;
  return true;
}

template <typename T>
bool FromChars(std::string_view text, T* out) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  if (end != text.data() + text.size() || text.empty()) return false;
  if (error == std::errc()) return true;
  if constexpr (std::is_floating_point_v<T>) {
    // Too large or too small for T: what rounding to nearest gives, as strtod does.
    if (error != std::errc::result_out_of_range) return false;
    *out = static_cast<T>(std::strtod(std::string(text).c_str(), nullptr));
    return true;
  }
  return false;
}

bool ParseInteger(PrimitiveType type, std::string_view text, Literal* whole, int64_t index) {
  const int bits = BitWidth(type);
  if (IsUnsigned(type)) {
    uint64_t value = 0;
    if (text == "-0") text = "0";
    if (!FromChars(text, &value) || (bits < 64 && (value >> bits) != 0)) return false;
    StoreBits(value, ByteWidth(type), whole->mutable_bytes() + index * ByteWidth(type));
    return true;
  }
  int64_t value = 0;
  if (!FromChars(text, &value)) return false;
  if (bits < 64 && (value < -(int64_t{1} << (bits - 1)) || value >= (int64_t{1} << (bits - 1)))) return false;
  StoreBits(static_cast<uint64_t>(value), ByteWidth(type), whole->mutable_bytes() + index * ByteWidth(type));
  return true;
}

template <typename T>
void AppendNumber(T value, std::string* out) {
  char buffer[64];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), value);
  out->append(buffer, end - buffer);
}

void AppendFloat(PrimitiveType type, const Literal& l, int64_t index, const std::byte* at, std::string* out) {
  const double value = type == PrimitiveType::kF32   ? LoadFloat<float>(at)
                       : type == PrimitiveType::kF64 ? LoadFloat<double>(at)
                                                     : l.GetAsDouble(index);
  if (std::isinf(value)) {
    out->append(value < 0 ? "-inf" : "inf");
  } else if (!std::isnan(value)) {
    if (type == PrimitiveType::kF64) return AppendNumber(value, out);
    return AppendNumber(static_cast<float>(value), out);
  } else {
    const NanFormat f = NanOf(type);
    const uint64_t bits = LoadBits(at, ByteWidth(type));
    const int width = BitWidth(type);
    const bool negative = f.negative != f.positive && ((bits >> (width - 1)) & 1) != 0;
    out->append(negative ? "-nan" : "nan");
    if (f.ieee && bits != (negative ? f.negative : f.positive)) {
      char buffer[24];
      const auto [end, error] =
          std::to_chars(buffer, buffer + sizeof(buffer), bits & ((uint64_t{1} << f.mantissa) - 1), 16);
      out->append("(0x").append(buffer, end - buffer).append(")");
    }
  }
}

void AppendElement(const Literal& l, PrimitiveType type, int64_t index, std::string* out) {
  const int64_t width = ByteWidth(type);
  const std::byte* at = l.bytes() + index * width;
  if (IsComplex(type)) {
    const PrimitiveType part = ComplexComponent(type);
    const int64_t half = width / 2;
    out->push_back('(');
    AppendFloat(part, l, index, at, out);
    out->append(", ");
    AppendFloat(part, l, index, at + half, out);
    out->push_back(')');
  } else if (IsFloat(type)) {
    AppendFloat(type, l, index, at, out);
  } else if (type == PrimitiveType::kPred) {
    out->append(static_cast<uint8_t>(*at) != 0 ? "true" : "false");
  } else if (IsUnsigned(type)) {
    AppendNumber(LoadBits(at, width), out);
  } else {
    AppendNumber(l.GetAsInt64(index), out);
  }
}

void AppendLevel(const Literal& l, absl::Span<const int64_t> dims, int64_t* next, std::string* out) {
  if (dims.empty()) return AppendElement(l, l.type(), (*next)++, out);
  out->push_back('{');
  for (int64_t i = 0; i < dims[0]; ++i) {
    if (i > 0) out->append(", ");
    AppendLevel(l, dims.subspan(1), next, out);
  }
  out->push_back('}');
}

uint64_t SplitMix(uint64_t* state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

bool ParseNumber(PrimitiveType type, std::string_view text, Literal* whole, int64_t index) {
  if (text.empty()) return false;
  const int64_t width = ByteWidth(type);
  if (type == PrimitiveType::kPred) {
    if (text != "0" && text != "1" && text != "true" && text != "false") return false;
    StoreBits(text == "1" || text == "true", width, whole->mutable_bytes() + index);
    return true;
  }
  if (IsIntegral(type)) return ParseInteger(type, text, whole, index);
  if (text.find('n') != std::string_view::npos && text.find("nan") != std::string_view::npos) {
    uint64_t bits = 0;
    if (!ParseNan(type, text, &bits)) return false;
    StoreBits(bits, width, whole->mutable_bytes() + index * width);
    return true;
  }
  // Each width reads its own decimal: going through double would round twice.
  if (type == PrimitiveType::kF32) {
    float value = 0;
    if (!FromChars(text, &value)) return false;
    std::memcpy(whole->mutable_bytes() + index * width, &value, sizeof(value));
    return true;
  }
  double value = 0;
  if (!FromChars(text, &value)) return false;
  if (type == PrimitiveType::kF64) {
    std::memcpy(whole->mutable_bytes() + index * width, &value, sizeof(value));
  } else {
    whole->SetFromDouble(index, value);
  }
  return true;
}

void AppendLiteral(const Literal& literal, std::string* out) {
  const Shape& shape = literal.shape();
  if (shape.is_tuple()) {
    out->append("( ");
    for (size_t i = 0; i < literal.elements().size(); ++i) {
      if (i > 0) out->append(", ");
      AppendLiteral(literal.elements()[i], out);
    }
    out->append(" )");
    return;
  }
  if (!shape.is_array()) return;
  const std::vector<int64_t> dims = shape.constant_dims();
  int64_t next = 0;
  AppendLevel(literal, dims, &next, out);
}

void FillDeterministic(std::string_view name, Literal* out) {
  const PrimitiveType type = out->type();
  uint64_t state = 0xcbf29ce484222325;
  for (char c : name) state = (state ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  const int64_t n = out->num_elements(), width = ByteWidth(type);
  std::byte* bytes = n == 0 ? nullptr : out->mutable_bytes();
  for (int64_t i = 0; i < n; ++i) {
    const double unit = static_cast<double>(SplitMix(&state) >> 11) * 0x1p-53;
    if (type == PrimitiveType::kPred || IsIntegral(type)) {
      bytes[i * width] = static_cast<std::byte>(unit < 0.5 ? 0 : type == PrimitiveType::kS1 ? 0xff : 1);
    } else {
      out->SetFromDouble(i, unit * 2 - 1);
    }
  }
}

}  // namespace tenon::text
