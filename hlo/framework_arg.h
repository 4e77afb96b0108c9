// FrameworkArg: one argument of a framework (ATen) operator as plain data, and its text form.
//
// The text form is used in aten::Graph text, in the backend_config of custom-call "aten.*" and in dumps:
//   %3 (tensor operand 3)   none   12   -1   1.5   inf   -inf   nan   true   false   "string"   [a, b]
//   complex(1.0,2.0)   dtype:f32   layout:strided   device:cpu   format:contiguous   sym(4*s0+1)
//   %3{8,1} (operand 3 in these strides, by a copy if it has others)
//   %3[4]{2}+7 (a view of it: sizes, strides, offset from its first element)
// A float always prints with '.', 'e', inf or nan, shortest that reads back to the same bits.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "hlo/primitive_type.h"

namespace tenon {

struct FrameworkArg {
  enum class Kind : uint8_t {
    kNone, kTensor, kInt, kFloat, kBool, kComplex, kString, kList, kDtype, kLayout, kDevice, kMemoryFormat, kSymInt
  };
  Kind kind = Kind::kNone;
  int64_t i = 0;         // kTensor: operand index; kInt; kBool
  double f = 0, im = 0;  // kFloat; kComplex (f, im)
  PrimitiveType dtype = PrimitiveType::kF32;
  std::string s;  // kString; layout, device, memory format by torch's name; kSymInt: the Dim's text
  std::vector<FrameworkArg> list;  // kList; kTensor: nothing, [strides], or [sizes, strides, offset]

  static FrameworkArg None() { return {}; }
  static FrameworkArg Tensor(int64_t operand) { return {.kind = Kind::kTensor, .i = operand}; }
  static FrameworkArg Int(int64_t v) { return {.kind = Kind::kInt, .i = v}; }
  static FrameworkArg Float(double v) { return {.kind = Kind::kFloat, .f = v}; }
  static FrameworkArg Bool(bool v) { return {.kind = Kind::kBool, .i = v}; }
  static FrameworkArg String(std::string v) { return {.kind = Kind::kString, .s = std::move(v)}; }
  static FrameworkArg List(std::vector<FrameworkArg> v) { return {.kind = Kind::kList, .list = std::move(v)}; }
  static FrameworkArg IntList(const std::vector<int64_t>& v) {
    FrameworkArg a{.kind = Kind::kList};
    for (int64_t x : v) a.list.push_back(Int(x));
    return a;
  }
  bool is_none() const { return kind == Kind::kNone; }
  bool is_tensor() const { return kind == Kind::kTensor; }
  bool operator==(const FrameworkArg&) const = default;
};

std::string ToString(const FrameworkArg& arg);
bool IsWindow(const FrameworkArg& tensor);  // its list is one of the three
std::string WindowText(const FrameworkArg& tensor);  // what stands behind a tensor's name
std::string ToString(const std::vector<FrameworkArg>& args);  // "(%0, [1, 2], none)"
absl::StatusOr<std::vector<FrameworkArg>> ParseFrameworkArgs(std::string_view text);
// Parses one argument at the front of `text` and advances it (for the aten::Graph parser). `tensor_name` maps "%name"
// to an operand index when tensors are named rather than numbered.
absl::StatusOr<FrameworkArg> ConsumeFrameworkArg(
    std::string_view& text, const std::function<absl::StatusOr<int64_t>(std::string_view)>& tensor_name = nullptr);

}  // namespace tenon
