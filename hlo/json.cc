#include "hlo/json.h"

#include <charconv>
#include <cmath>

#include "hlo/text_counts.h"

namespace tenon {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

// Length of the well-formed sequence at `at`, 0 if there is none (Unicode 15, table 3-7).
size_t Utf8Length(std::string_view s, size_t at) {
  const auto byte = [&](size_t k) { return at + k < s.size() ? static_cast<unsigned char>(s[at + k]) : 0u; };
  const auto in = [&](size_t k, unsigned low, unsigned high) { return byte(k) >= low && byte(k) <= high; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return in(1, 0x80, 0xbf) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const unsigned low = first == 0xe0 ? 0xa0 : 0x80, high = first == 0xed ? 0x9f : 0xbf;
    return in(1, low, high) && in(2, 0x80, 0xbf) ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const unsigned low = first == 0xf0 ? 0x90 : 0x80, high = first == 0xf4 ? 0x8f : 0xbf;
    return in(1, low, high) && in(2, 0x80, 0xbf) && in(3, 0x80, 0xbf) ? 4 : 0;
  }
  return 0;
}

void AppendString(std::string_view s, std::string* out) {
  constexpr std::string_view kHex = "0123456789abcdef";
  out->push_back('"');
  for (size_t at = 0; at < s.size();) {
    const char c = s[at];
    const size_t length = Utf8Length(s, at);
    if (length != 1) {
      out->append(length == 0 ? kReplacement : s.substr(at, length));
      at += length == 0 ? 1 : length;
      continue;
    }
    ++at;
    switch (c) {
      case '"': out->append("\\\""); break;
      case '\\': out->append("\\\\"); break;
      case '\b': out->append("\\b"); break;
      case '\f': out->append("\\f"); break;
      case '\n': out->append("\\n"); break;
      case '\r': out->append("\\r"); break;
      case '\t': out->append("\\t"); break;
      default:
        if (static_cast<unsigned char>(c) >= 0x20) {
          out->push_back(c);
        } else {
          out->append("\\u00");
          out->push_back(kHex[c >> 4]);
          out->push_back(kHex[c & 15]);
        }
    }
  }
  out->push_back('"');
}

template <typename T>
void AppendNumber(T n, std::string* out) {
  char digits[32];
  out->append(digits, std::to_chars(digits, digits + sizeof digits, n).ptr);
}

void AppendDouble(double x, std::string* out) {
  if (!std::isfinite(x)) return void(out->append("null"));
  const size_t begin = out->size();
  AppendNumber(x, out);
  if (out->find_first_of(".e", begin) == std::string::npos) out->append(".0");  // it stays a number with a fraction
}

void AppendUtf8(uint32_t c, std::string* out) {
  const auto put = [&](uint32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (c < 0x80) return put(c);
  if (c < 0x800) return put(0xc0 | c >> 6), put(0x80 | (c & 63));
  if (c < 0x10000) return put(0xe0 | c >> 12), put(0x80 | (c >> 6 & 63)), put(0x80 | (c & 63));
  put(0xf0 | c >> 18), put(0x80 | (c >> 12 & 63)), put(0x80 | (c >> 6 & 63)), put(0x80 | (c & 63));
}

// RFC 8259.
class Reader {
 public:
  explicit Reader(std::string_view text) : s_(text) {}

  bool Document(Json* out) { return Value(out, 0) && (Space(), at_ == s_.size()); }

 private:
  void Space() {
    while (at_ < s_.size() && (s_[at_] == ' ' || s_[at_] == '\t' || s_[at_] == '\n' || s_[at_] == '\r')) ++at_;
  }
  bool Take(std::string_view word) {
    if (s_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  bool Value(Json* out, int depth) {
    Space();
    if (at_ == s_.size() || depth > Json::kMaxDepth) return false;
    switch (s_[at_]) {
      case '{': return Members(out, depth);
      case '[': return Elements(out, depth);
      case '"': {
        std::string text;
        if (!String(&text)) return false;
        *out = Json(std::move(text));
        return true;
      }
      case 't': return *out = Json(true), Take("true");
      case 'f': return *out = Json(false), Take("false");
      case 'n': return *out = Json(), Take("null");
      default: return Number(out);
    }
  }

  bool Members(Json* out, int depth) {
    *out = Json::object();
    ++at_;
    Space();
    if (Take("}")) return true;
    do {
      Space();
      std::string key;
      if (at_ == s_.size() || s_[at_] != '"' || !String(&key)) return false;
      Space();
      if (!Take(":") || !Value(&(*out)[key], depth + 1)) return false;
      Space();
    } while (Take(","));
    return Take("}");
  }

  bool Elements(Json* out, int depth) {
    *out = Json::array();
    ++at_;
    Space();
    if (Take("]")) return true;
    do {
      Json element;
      if (!Value(&element, depth + 1)) return false;
      out->push_back(std::move(element));
      Space();
    } while (Take(","));
    return Take("]");
  }

  bool Hex(uint32_t* code) {
    if (at_ + 4 > s_.size()) return false;
    const auto [end, error] = std::from_chars(s_.data() + at_, s_.data() + at_ + 4, *code, 16);
    if (error != std::errc() || end != s_.data() + at_ + 4) return false;
    at_ += 4;
    return true;
  }

  bool Escape(std::string* out) {
    if (at_ == s_.size()) return false;
    constexpr std::string_view kNames = "\"\\/bfnrt", kMeans = "\"\\/\b\f\n\r\t";
    const char c = s_[at_++];
    if (const size_t k = kNames.find(c); k != std::string_view::npos) return out->push_back(kMeans[k]), true;
    uint32_t code = 0, low = 0;
    if (c != 'u' || !Hex(&code)) return false;
    if (code >= 0xd800 && code < 0xdc00) {  // the first of a pair
      if (!Take("\\u") || !Hex(&low) || low < 0xdc00 || low >= 0xe000) return false;
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code >= 0xdc00 && code < 0xe000) {
      return false;
    }
    return AppendUtf8(code, out), true;
  }

  bool String(std::string* out) {
    ++at_;
    while (at_ < s_.size()) {
      const unsigned char c = static_cast<unsigned char>(s_[at_]);
      if (c == '"') return ++at_, true;
      if (c < 0x20) return false;
      if (c == '\\') {
        ++at_;
        if (!Escape(out)) return false;
        continue;
      }
      const size_t length = Utf8Length(s_, at_);
      if (length == 0) return false;
      out->append(s_.substr(at_, length));
      at_ += length;
    }
    return false;
  }

  bool Digits() {
    const size_t begin = at_;
    while (at_ < s_.size() && s_[at_] >= '0' && s_[at_] <= '9') ++at_;
    return at_ > begin;
  }

  bool Number(Json* out) {
    const size_t begin = at_;
    Take("-");
    const size_t first = at_;
    if (!Digits() || (s_[first] == '0' && at_ > first + 1)) return false;
    bool whole = true;
    if (Take(".")) {
      whole = false;
      if (!Digits()) return false;
    }
    if (Take("e") || Take("E")) {
      whole = false;
      if (!Take("+")) Take("-");
      if (!Digits()) return false;
    }
    const char *low = s_.data() + begin, *high = s_.data() + at_;
    int64_t n = 0;
    uint64_t u = 0;
    if (whole && std::from_chars(low, high, n).ec == std::errc()) return *out = Json(n), true;
    if (whole && std::from_chars(low, high, u).ec == std::errc()) return *out = Json(u), true;
    double x = 0;
    if (std::from_chars(low, high, x).ec != std::errc()) return false;  // beyond what a double holds
    return *out = Json(x), true;
  }

  std::string_view s_;
  size_t at_ = 0;
};

}  // namespace

Json::Json(std::initializer_list<Json> elements) {
  bool pairs = true;
  for (const Json& e : elements) pairs = pairs && e.is_array() && e.elements().size() == 2 && e.elements()[0].is_string();
  if (!pairs) {
    value_ = Array(elements);
    return;
  }
  value_ = Object();
  for (const Json& e : elements) (*this)[std::get<std::string>(e.elements()[0].value_)] = e.elements()[1];
}

std::optional<Json> Json::Parse(std::string_view text) {
  Count(text_counts.json_parsed);
  Json json;
  if (!Reader(text).Document(&json)) return std::nullopt;
  return json;
}

std::string Json::dump() const {
  std::string out;
  AppendTo(&out);
  return out;
}

void Json::AppendTo(std::string* out) const {
  if (is_null()) return void(out->append("null"));
  if (const auto* b = std::get_if<bool>(&value_)) return void(out->append(*b ? "true" : "false"));
  if (const auto* n = std::get_if<int64_t>(&value_)) return AppendNumber(*n, out);
  if (const auto* n = std::get_if<uint64_t>(&value_)) return AppendNumber(*n, out);
  if (const auto* x = std::get_if<double>(&value_)) return AppendDouble(*x, out);
  if (const auto* s = std::get_if<std::string>(&value_)) return AppendString(*s, out);
  const bool list = is_array();
  const char* separator = "";
  out->push_back(list ? '[' : '{');
  for (const Json& e : elements()) {
    out->append(std::exchange(separator, ","));
    e.AppendTo(out);
  }
  for (const auto& [key, value] : items()) {
    out->append(std::exchange(separator, ","));
    AppendString(key, out);
    out->push_back(':');
    value.AppendTo(out);
  }
  out->push_back(list ? ']' : '}');
}

std::string_view Json::type_name() const {
  constexpr std::string_view kNames[] = {"null", "true or false", "a number", "a number", "a number", "a string", "a list", "an object"};
  return kNames[value_.index()];
}

const Json::Object& Json::items() const {
  static const Object none;
  const auto* object = std::get_if<Object>(&value_);
  return object == nullptr ? none : *object;
}

const Json::Array& Json::elements() const {
  static const Array none;
  const auto* array = std::get_if<Array>(&value_);
  return array == nullptr ? none : *array;
}

const Json* Json::Find(std::string_view key) const {
  for (const auto& [name, value] : items()) {
    if (name == key) return &value;
  }
  return nullptr;
}

const Json& Json::operator[](std::string_view key) const {
  const Json* found = Find(key);
  if (found == nullptr) throw JsonError("no \"" + std::string(key) + "\" in " + std::string(type_name()));
  return *found;
}

Json& Json::operator[](std::string_view key) {
  if (Json* found = const_cast<Json*>(std::as_const(*this).Find(key))) return *found;
  if (is_null()) value_ = Object();
  auto* object = std::get_if<Object>(&value_);
  if (object == nullptr) Wrong("an object");
  return object->emplace_back(std::string(key), Json()).second;
}

void Json::push_back(Json element) {
  if (is_null()) value_ = Array();
  auto* array = std::get_if<Array>(&value_);
  if (array == nullptr) Wrong("a list");
  array->push_back(std::move(element));
}

void Json::Wrong(std::string_view wanted) const {
  throw JsonError("wanted " + std::string(wanted) + ", got " + std::string(type_name()));
}

}  // namespace tenon
