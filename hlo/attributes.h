// Attribute values and the small ordered map of them that an Instruction holds.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "hlo/check.h"
#include "hlo/dim/dim.h"
#include "hlo/framework_call.h"
#include "hlo/opcode.h"

namespace tenon {

class Computation;

struct SliceSpec {  // per dimension [start:limit:stride]
  std::vector<Dim> starts, limits;
  std::vector<int64_t> strides;
  bool operator==(const SliceSpec&) const = default;
};

struct WindowDim {
  int64_t size = 1, stride = 1, padding_low = 0, padding_high = 0;
  int64_t base_dilation = 1, window_dilation = 1;  // lhs_dilate, rhs_dilate in text
  bool reversed = false;
  bool operator==(const WindowDim&) const = default;
};
struct Window {
  std::vector<WindowDim> dims;
  bool operator==(const Window&) const = default;
};

struct DimLabels {  // convolution dimension numbers; indices into the operand's / result's dims
  int64_t input_batch = 0, input_feature = 1, kernel_input_feature = 1, kernel_output_feature = 0, output_batch = 0,
          output_feature = 1;
  std::vector<int64_t> input_spatial, kernel_spatial, output_spatial;
  bool operator==(const DimLabels&) const = default;
};

struct PaddingDim {
  int64_t low = 0, high = 0, interior = 0;
  bool operator==(const PaddingDim&) const = default;
};
struct PaddingConfig {
  std::vector<PaddingDim> dims;
  bool operator==(const PaddingConfig&) const = default;
};

using AttrValue = std::variant<int64_t, bool, std::string, std::vector<int64_t>, std::vector<Dim>, double, SliceSpec, Window, DimLabels,
                               PaddingConfig, Computation*, std::vector<Computation*>, FrameworkCallRef>;

// Sorted by Attr; few entries. A kBackendConfig is a std::string, with backend_config_is_json where it was JSON in the text (not a quoted
// string), or a FrameworkCallRef.
class Attributes {
 public:
  bool has(Attr a) const { return find(a) != nullptr; }
  const AttrValue* find(Attr a) const;
  template <typename T>
  const T& get(Attr a) const {
    const AttrValue* v = find(a);
    TENON_CHECK(v != nullptr && std::holds_alternative<T>(*v), std::string(AttrName(a)));
    return std::get<T>(*v);
  }
  template <typename T>
  T get_or(Attr a, T otherwise) const {
    const AttrValue* v = find(a);
    return v == nullptr ? otherwise : std::get<T>(*v);
  }
  template <typename T>
  T* mutable_get(Attr a) {
    AttrValue* v = const_cast<AttrValue*>(find(a));
    return v == nullptr ? nullptr : &std::get<T>(*v);
  }
  void set(Attr a, AttrValue value);
  void erase(Attr a);

  // Attributes of unknown name: (key, verbatim value text), in source order.
  std::vector<std::pair<std::string, std::string>> unknown;
  bool backend_config_is_json = false;

  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

 private:
  std::vector<std::pair<Attr, AttrValue>> entries_;
};

}  // namespace tenon
