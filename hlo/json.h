// A JSON value: what crosses the C seam, what backend_config holds, what reports are made of.
//
// Not nlohmann's, whose destructor allocates and so ends the process where there is no memory; members have its names. Destruction
// and moves of a Json never allocate. Objects keep the order in which keys were set. Not for untrusted depth: Parse refuses more
// than kMaxDepth levels, so that nothing here that recurses can overflow the stack.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tenon {

// A value is not of the type, or hasn't the member, that was asked for.
class JsonError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;
  static constexpr int kMaxDepth = 200;

  Json() = default;
  Json(std::nullptr_t) {}
  Json(bool b) : value_(b) {}
  Json(std::integral auto n) : value_(Number(n)) {}
  Json(double x) : value_(x) {}
  Json(const char* s) : value_(std::string(s)) {}
  Json(std::string s) : value_(std::move(s)) {}
  Json(std::string_view s) : value_(std::string(s)) {}
  // An object if every element is a pair [string, value], as in {{"a", 1}, {"b", 2}}; else an array.
  Json(std::initializer_list<Json> elements);
  Json(Array elements) : value_(std::move(elements)) {}
  template <typename T>
  Json(const std::vector<T>& elements) : value_(Array(elements.begin(), elements.end())) {}
  // By assignment: a copy of a variant that throws is destroyed though it was never made, in libstdc++ 12 (_M_valid() of a variant
  // of strings and vectors is always true).
  Json(const Json& other) { value_ = other.value_; }
  Json(Json&&) noexcept = default;
  Json& operator=(const Json&) = default;
  Json& operator=(Json&&) noexcept = default;
  ~Json() = default;
  static Json array() { return Json(Value(Array())); }
  static Json object() { return Json(Value(Object())); }

  // nullopt: not JSON, or too deep. Numbers without fraction and exponent that fit 64 bits are integers.
  static std::optional<Json> Parse(std::string_view text);
  // Without spaces. Bytes that are no UTF-8 become U+FFFD; NaN and infinities, null.
  std::string dump() const;

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_boolean() const { return std::holds_alternative<bool>(value_); }
  bool is_number_integer() const { return std::holds_alternative<int64_t>(value_) || std::holds_alternative<uint64_t>(value_); }
  bool is_number() const { return is_number_integer() || std::holds_alternative<double>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }
  std::string_view type_name() const;  // "an object"

  // bool, integers (whose range is checked), double, std::string, and vectors of them. Throws JsonError.
  template <typename T>
  T get() const;

  // Of an object; none of anything else.
  bool contains(std::string_view key) const { return Find(key) != nullptr; }
  const Object& items() const;
  const Json& operator[](std::string_view key) const;  // throws where there is none
  Json& operator[](std::string_view key);              // made where there is none; null becomes an object
  template <typename T>
  T value(std::string_view key, T otherwise) const {
    const Json* found = Find(key);
    return found == nullptr ? otherwise : found->get<T>();
  }
  std::string value(std::string_view key, const char* otherwise) const { return value(key, std::string(otherwise)); }

  // Of an array; none of anything else. push_back makes null an array.
  const Array& elements() const;
  void push_back(Json element);
  Json& back() { return std::get<Array>(value_).back(); }

  bool operator==(std::string_view text) const { return is_string() && std::get<std::string>(value_) == text; }

 private:
  using Value = std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, Array, Object>;
  explicit Json(Value value) : value_(std::move(value)) {}
  static Value Number(std::integral auto n) {
    if constexpr (std::unsigned_integral<decltype(n)>) {
      if (n > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return static_cast<uint64_t>(n);
    }
    return static_cast<int64_t>(n);
  }
  const Json* Find(std::string_view key) const;
  [[noreturn]] void Wrong(std::string_view wanted) const;
  void AppendTo(std::string* out) const;

  Value value_;
};

template <typename T>
inline constexpr bool kIsVector = false;
template <typename T>
inline constexpr bool kIsVector<std::vector<T>> = true;

template <typename T>
T Json::get() const {
  if constexpr (std::same_as<T, bool>) {
    if (is_boolean()) return std::get<bool>(value_);
    Wrong("true or false");
  } else if constexpr (std::integral<T>) {
    if (const auto* n = std::get_if<int64_t>(&value_); n != nullptr && std::in_range<T>(*n)) return static_cast<T>(*n);
    if (const auto* n = std::get_if<uint64_t>(&value_); n != nullptr && std::in_range<T>(*n)) return static_cast<T>(*n);
    Wrong(is_number_integer() ? "a smaller number" : "a whole number");
  } else if constexpr (std::same_as<T, double>) {
    if (const auto* n = std::get_if<int64_t>(&value_)) return static_cast<double>(*n);
    if (const auto* n = std::get_if<uint64_t>(&value_)) return static_cast<double>(*n);
    if (const auto* x = std::get_if<double>(&value_)) return *x;
    Wrong("a number");
  } else if constexpr (std::same_as<T, std::string>) {
    if (is_string()) return std::get<std::string>(value_);
    Wrong("a string");
  } else {
    static_assert(kIsVector<T>, "no type that JSON has");
    if (!is_array()) Wrong("a list");
    T all;
    for (const Json& e : elements()) all.push_back(e.get<typename T::value_type>());
    return all;
  }
}

}  // namespace tenon
