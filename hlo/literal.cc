#include "hlo/literal.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "hlo/numeric_types.h"
#include "hlo/text/literal_text.h"

namespace tenon {
namespace {

std::shared_ptr<const void> AllocateZeroed(int64_t bytes) {
  void* memory = std::calloc(1, std::max<int64_t>(bytes, 1));
  if (memory == nullptr) throw std::bad_alloc();
  return {memory, [](const void* p) { std::free(const_cast<void*>(p)); }};
}

template <typename T>
T Read(const std::byte* data, int64_t i) {
  T value;
  std::memcpy(&value, data + i * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
double ToDouble(T value) {
  if constexpr (kIsComplex<T>) {
    return value.real();
  } else {
    return static_cast<double>(value);
  }
}

template <typename T>
T FromDouble(double value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value != 0;
  } else if constexpr (std::is_integral_v<T>) {
    return TruncateSaturating<T>(value);
  } else if constexpr (std::is_constructible_v<T, int64_t> && !std::is_arithmetic_v<T> &&
                       !kIsComplex<T> && std::is_convertible_v<T, int64_t>) {
    return T(TruncateSaturating<int64_t>(value));
  } else {
    return T(value);
  }
}

template <typename T>
T FromInt(int64_t value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value != 0;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(value);
  } else if constexpr (std::is_convertible_v<T, int64_t> && !std::is_arithmetic_v<T>) {
    return T(value);
  } else if constexpr (std::is_same_v<T, float>) {
    return static_cast<float>(value);
  } else {
    return T(static_cast<double>(value));
  }
}

uint64_t Mix(uint64_t h, uint64_t word) {
  unsigned __int128 product =
      static_cast<unsigned __int128>(h ^ word ^ 0x9e3779b97f4a7c15u) * 0xda942042e4dd58b5u;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t HashBytes(uint64_t h, const std::byte* data, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) h = Mix(h, Read<uint64_t>(data + i, 0));
  uint64_t tail = 0;
  if (i < n) std::memcpy(&tail, data + i, n - i);
  return Mix(Mix(h, tail), static_cast<uint64_t>(n));
}

}  // namespace

Literal::Literal(Shape shape) : shape_(std::move(shape)) {
  if (shape_.is_array()) {
    owner_ = AllocateZeroed(size_bytes());
    data_ = static_cast<const std::byte*>(owner_.get());
    unique_ = true;
  }
  for (const Shape& e : shape_.elements()) elements_.emplace_back(e);
}

Literal::Literal(Shape shape, std::shared_ptr<const void> owner, const void* data)
    : shape_(std::move(shape)), owner_(std::move(owner)), data_(static_cast<const std::byte*>(data)) {
  TENON_CHECK(shape_.is_array(), shape_.ToString());
}

Literal Literal::Tuple(std::vector<Literal> elements) {
  std::vector<Shape> shapes;
  shapes.reserve(elements.size());
  for (const Literal& e : elements) shapes.push_back(e.shape());
  Literal tuple;
  tuple.shape_ = Shape::Tuple(std::move(shapes));
  tuple.elements_ = std::move(elements);
  return tuple;
}

Literal Literal::Full(PrimitiveType type, absl::Span<const int64_t> dims, double value) {
  Literal l(Shape::Array(type, dims));
  DispatchType(type, [&]<typename T>(TypeTag<T>) {
    T* data = reinterpret_cast<T*>(l.mutable_bytes());
    std::fill_n(data, l.num_elements(), FromDouble<T>(value));
  });
  return l;
}

Literal Literal::ScalarInt(PrimitiveType type, int64_t value) {
  Literal l(Shape::Scalar(type));
  l.SetFromInt64(0, value);
  return l;
}

std::byte* Literal::mutable_bytes() {
  if (!unique_ || owner_.use_count() != 1) {
    std::shared_ptr<const void> fresh = AllocateZeroed(size_bytes());
    if (data_ != nullptr) std::memcpy(const_cast<void*>(fresh.get()), data_, size_bytes());
    owner_ = std::move(fresh);
    data_ = static_cast<const std::byte*>(owner_.get());
    unique_ = true;
  }
  return const_cast<std::byte*>(data_);
}

double Literal::GetAsDouble(int64_t i) const {
  return DispatchType(type(),
                      [&]<typename T>(TypeTag<T>) { return ToDouble(Read<T>(data_, i)); });
}

int64_t Literal::GetAsInt64(int64_t i) const {
  return DispatchType(type(), [&]<typename T>(TypeTag<T>) -> int64_t {
    T value = Read<T>(data_, i);
    if constexpr (std::is_convertible_v<T, int64_t> && !std::is_floating_point_v<T>) {
      return static_cast<int64_t>(value);
    } else {
      return TruncateSaturating<int64_t>(ToDouble(value));
    }
  });
}

std::complex<double> Literal::GetAsComplex(int64_t i) const {
  return DispatchType(type(), [&]<typename T>(TypeTag<T>) -> std::complex<double> {
    T value = Read<T>(data_, i);
    if constexpr (kIsComplex<T>) {
      return {value.real(), value.imag()};
    } else {
      return ToDouble(value);
    }
  });
}

void Literal::SetFromDouble(int64_t i, double value) {
  std::byte* data = mutable_bytes();
  DispatchType(type(), [&]<typename T>(TypeTag<T>) {
    reinterpret_cast<T*>(data)[i] = FromDouble<T>(value);
  });
}

void Literal::SetFromInt64(int64_t i, int64_t value) {
  std::byte* data = mutable_bytes();
  DispatchType(type(), [&]<typename T>(TypeTag<T>) {
    reinterpret_cast<T*>(data)[i] = FromInt<T>(value);
  });
}

bool Literal::IsAllEqualTo(double value) const {
  if (!shape_.is_array()) return false;
  return DispatchType(type(), [&]<typename T>(TypeTag<T>) {
    for (int64_t i = 0, n = num_elements(); i < n; ++i) {
      T element = Read<T>(data_, i);
      if constexpr (kIsComplex<T>) {
        if (element.imag() != 0) return false;
      }
      if constexpr (std::is_integral_v<T> && sizeof(T) == 8) {
        // A 64-bit integer may round to `value` without being it.
        if (std::fabs(value) >= 0x1p53 && T(FromDouble<T>(value)) != element) return false;
      }
      if (ToDouble(element) != value) return false;
    }
    return true;
  });
}

bool Literal::IsSplat() const {
  if (!shape_.is_array() || num_elements() == 0) return false;
  int64_t width = ByteWidth(type()), bytes = size_bytes();
  return bytes <= width || std::memcmp(data_, data_ + width, bytes - width) == 0;
}

bool operator==(const Literal& a, const Literal& b) {
  if (!Shape::Compatible(a.shape_, b.shape_)) return false;
  if (a.elements_ != b.elements_) return false;
  if (!a.shape_.is_array() || a.data_ == b.data_) return true;
  return std::memcmp(a.data_, b.data_, a.size_bytes()) == 0;
}

uint64_t Literal::Hash() const {
  uint64_t h = Mix(0, static_cast<uint64_t>(type()));
  if (shape_.is_array()) {
    for (Dim d : shape_.dims()) h = Mix(h, d.constant());
    return HashBytes(h, data_, size_bytes());
  }
  for (const Literal& e : elements_) h = Mix(h, e.Hash());
  return h;
}

std::string Literal::ToString() const {
  std::string out;
  text::AppendLiteral(*this, &out);
  return out;
}

}  // namespace tenon
