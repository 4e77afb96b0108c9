#include "torch_plugin/executor/args.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/List.h>
#include <ATen/core/jit_type.h>
#include <c10/core/Device.h>
#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>

#include <string>
#include <string_view>

#include "torch_plugin/executor/dtype.h"

namespace tenon::torch_host {
namespace {

using c10::IValue;
using c10::TypeKind;

// The numbers of FrameworkArg::Kind (hlo/framework_arg.h).
enum Kind : int32_t {
  kNone,
  kTensor,
  kInt,
  kFloat,
  kBool,
  kComplex,
  kString,
  kList,
  kDtype,
  kLayout,
  kDevice,
  kMemoryFormat,
  kSymInt
};
constexpr const char* kKindNames[] = {
    "none",   "a tensor", "an int",   "a float",  "a bool",          "a complex", "a string",
    "a list", "a dtype",  "a layout", "a device", "a memory format", "a SymInt"};

[[noreturn]] void Refuse(const TenonArg& arg, std::string_view wanted) {
  TORCH_CHECK(false, "wanted ", wanted, ", got ", kKindNames[arg.kind]);
}

int64_t LayoutNumber(std::string_view name) {
  for (const c10::Layout layout :
       {c10::kStrided, c10::kSparse, c10::kSparseCsr, c10::kMkldnn, c10::kSparseCsc,
        c10::kSparseBsr, c10::kSparseBsc, c10::kJagged}) {
    std::ostringstream text;
    text << layout;  // "Strided"
    std::string lower = text.str();
    std::string wanted(name);
    auto canonical = [](std::string* s) {
      std::string out;
      for (char c : *s) {
        if (c != '_') out.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
      }
      *s = out;
    };
    canonical(&lower);
    canonical(&wanted);
    if (wanted == "sparsecoo") wanted = "sparse";
    if (lower == wanted) return static_cast<int64_t>(layout);
  }
  TORCH_CHECK(false, "unknown layout ", name);
}

int64_t MemoryFormatNumber(std::string_view name) {
  constexpr std::pair<std::string_view, c10::MemoryFormat> kFormats[] = {
      {"contiguous", c10::MemoryFormat::Contiguous},
      {"contiguous_format", c10::MemoryFormat::Contiguous},
      {"preserve", c10::MemoryFormat::Preserve},
      {"preserve_format", c10::MemoryFormat::Preserve},
      {"channels_last", c10::MemoryFormat::ChannelsLast},
      {"channels_last_3d", c10::MemoryFormat::ChannelsLast3d}};
  for (const auto& [text, format] : kFormats) {
    if (name == text) return static_cast<int64_t>(format);
  }
  TORCH_CHECK(false, "unknown memory format ", name);
}

bool IsNumber(const TenonArg& arg) {
  return arg.kind == kInt || arg.kind == kFloat || arg.kind == kBool || arg.kind == kComplex;
}

c10::Scalar ToScalar(const TenonArg& arg) {
  switch (arg.kind) {
    case kInt:
      return arg.i;
    case kBool:
      return arg.i != 0;
    case kFloat:
      return arg.f;
    case kComplex:
      return c10::complex<double>(arg.f, arg.im);
    default:
      Refuse(arg, "a number");
  }
}

// dtype, layout and memory format are ints in a schema.
int64_t ToInt(const TenonArg& arg) {
  switch (arg.kind) {
    case kInt:
    case kBool:
      return arg.i;
    case kDtype: {
      const auto type = ToTorch(arg.dtype);
      TORCH_CHECK(type.has_value(), "no torch dtype for ", tenon_dtype_name(arg.dtype));
      return static_cast<int64_t>(*type);
    }
    case kLayout:
      return LayoutNumber(arg.s);
    case kMemoryFormat:
      return MemoryFormatNumber(arg.s);
    default:
      Refuse(arg, "an int");
  }
}

double ToDouble(const TenonArg& arg) {
  if (arg.kind == kFloat) return arg.f;
  if (arg.kind == kInt || arg.kind == kBool) return static_cast<double>(arg.i);
  Refuse(arg, "a float");
}

at::Tensor WrappedNumber(const TenonArg& arg) {
  at::Tensor t = c10::scalar_to_tensor(ToScalar(arg));
  t.unsafeGetTensorImpl()->set_wrapped_number(true);
  return t;
}

template <typename T, typename F>
IValue ListOf(const TenonArg& arg, const std::optional<int32_t>& count, const F& element) {
  c10::List<T> list;
  if (arg.kind != kList) {  // "int[2] x=1": one number stands for all
    for (int32_t k = 0; k < count.value_or(1); ++k) list.push_back(element(arg));
    return list;
  }
  for (int64_t k = 0; k < arg.list_size; ++k) list.push_back(element(arg.list[k]));
  return list;
}

int64_t CountOuts(const c10::FunctionSchema& schema) {
  int64_t outs = 0;
  for (const c10::Argument& a : schema.arguments()) outs += a.is_out();
  return outs;
}

}  // namespace

ArgTemplate::ArgTemplate(const c10::FunctionSchema& schema, const TenonArg* args,
                         int64_t num_args) {
  const auto& wanted = schema.arguments();
  const int64_t total = static_cast<int64_t>(wanted.size());
  TORCH_CHECK(num_args == total || num_args == total - CountOuts(schema), "wanted ", total,
              " arguments, got ", num_args);
  for (int64_t k = 0; k < num_args; ++k) {
    try {
      values_.push_back(Convert(args[k], *wanted[k].type(), wanted[k].N()));
    } catch (const c10::Error& e) {
      TORCH_CHECK(false, "argument ", wanted[k].name(), ": ", e.what_without_backtrace());
    }
  }
}

ArgTemplate::Window ArgTemplate::WindowOf(const TenonArg& arg) {
  Window window;
  const auto numbers = [](const TenonArg& list, std::vector<int64_t>* out) {
    for (int64_t k = 0; k < list.list_size; ++k) out->push_back(list.list[k].i);
  };
  window.exact = arg.list_size == 1;
  window.view = arg.list_size == 3;
  if (window.exact) numbers(arg.list[0], &window.strides);
  if (!window.view) return window;
  numbers(arg.list[0], &window.sizes);
  numbers(arg.list[1], &window.strides);
  window.offset = arg.list[2].i;
  return window;
}

namespace {
// A copy. Of a dim of stride 0, one element.
at::Tensor InStrides(const at::Tensor& tensor, const std::vector<int64_t>& strides) {
  at::Tensor once = tensor;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (strides[d] == 0 && tensor.size(d) > 1) once = once.narrow(d, 0, 1);
  }
  at::Tensor copy = at::empty_strided(once.sizes(), strides, tensor.options());
  return copy.copy_(once).expand(tensor.sizes());
}
}  // namespace

at::Tensor ArgTemplate::Through(const Hole& hole, at::Tensor operand) {
  const Window& window = hole.window;
  if (!operand.defined() || (!window.exact && !window.view)) return operand;
  if (window.view) return operand.as_strided(window.sizes, window.strides, operand.storage_offset() + window.offset);
  TORCH_CHECK(operand.dim() == static_cast<int64_t>(window.strides.size()), "operand ", hole.operand, ": wanted ", window.strides.size(),
              " dims, got ", operand.dim());
  for (int64_t d = 0; d < operand.dim(); ++d) {
    if (operand.size(d) > 1 && operand.stride(d) != window.strides[d]) return InStrides(operand, window.strides);
  }
  return operand;
}

IValue ArgTemplate::LeaveOpen(NumberHole::As as, const TenonArg& arg, int64_t element) {
  number_holes_.push_back({as, values_.size(), element, arg.i});
  return int64_t{0};
}

IValue ArgTemplate::NumberOf(const TenonArg& arg, bool real) {
  holes_.push_back({values_.size(), -1, static_cast<int32_t>(arg.i), {.number = true, .real = real}});
  return {};
}

void ArgTemplate::Fill(const NumberHole& hole, int64_t number, IValue* value) {
  using As = NumberHole::As;
  switch (hole.as) {
    case As::kInt:
      *value = number;
      return;
    case As::kDouble:
      *value = static_cast<double>(number);
      return;
    case As::kTensor: {
      at::Tensor t = c10::scalar_to_tensor(number);
      t.unsafeGetTensorImpl()->set_wrapped_number(true);
      *value = std::move(t);
      return;
    }
    case As::kElement: {
      c10::List<int64_t> list = value->toIntList().copy();  // the template has the other
      list.set(static_cast<size_t>(hole.element), number);
      *value = std::move(list);
    }
  }
}

IValue ArgTemplate::Convert(const TenonArg& arg, const c10::Type& type,
                            const std::optional<int32_t>& count) {
  if (type.kind() == TypeKind::OptionalType) {
    if (arg.kind == kNone) return {};
    return Convert(arg, *type.castRaw<c10::OptionalType>()->getElementType(), count);
  }
  switch (type.kind()) {
    case TypeKind::TensorType:
      if (arg.kind == kSymInt) return LeaveOpen(NumberHole::As::kTensor, arg);
      if (IsNumber(arg)) return WrappedNumber(arg);
      if (arg.kind == kNone) return at::Tensor();
      if (arg.kind != kTensor) Refuse(arg, "a tensor");
      holes_.push_back({values_.size(), -1, static_cast<int32_t>(arg.i), WindowOf(arg)});
      return {};
    case TypeKind::NumberType:
      if (arg.kind == kTensor) return NumberOf(arg, /*real=*/false);
      return arg.kind == kSymInt ? LeaveOpen(NumberHole::As::kInt, arg) : ToScalar(arg);
    case TypeKind::IntType:
    case TypeKind::SymIntType:
      return arg.kind == kSymInt ? LeaveOpen(NumberHole::As::kInt, arg) : ToInt(arg);
    case TypeKind::FloatType:
    case TypeKind::SymFloatType:
      if (arg.kind == kTensor) return NumberOf(arg, /*real=*/true);
      return arg.kind == kSymInt ? LeaveOpen(NumberHole::As::kDouble, arg) : ToDouble(arg);
    case TypeKind::BoolType:
    case TypeKind::SymBoolType:
      if (arg.kind != kBool && arg.kind != kInt) Refuse(arg, "a bool");
      return arg.i != 0;
    case TypeKind::ComplexType:
      return ToScalar(arg).toComplexDouble();
    case TypeKind::StringType:
      if (arg.kind != kString) Refuse(arg, "a string");
      return std::string(arg.s);
    case TypeKind::DeviceObjType:
      if (arg.kind != kDevice && arg.kind != kString) Refuse(arg, "a device");
      return c10::Device(arg.s);
    case TypeKind::ListType:
      return ConvertList(arg, *type.castRaw<c10::ListType>(), count);
    case TypeKind::AnyType:  // functional collectives name their process group so
      if (arg.kind == kString) return std::string(arg.s);
      if (IsNumber(arg)) return ToScalar(arg);
      break;
    default:
      break;
  }
  if (arg.kind == kNone) return {};
  Refuse(arg, type.str());
}

IValue ArgTemplate::ConvertList(const TenonArg& arg, const c10::ListType& type,
                                const std::optional<int32_t>& count) {
  const c10::Type& element = *type.getElementType();
  switch (element.kind()) {
    case TypeKind::IntType:
    case TypeKind::SymIntType: {
      int64_t element_number = 0;
      return ListOf<int64_t>(arg, count, [&](const TenonArg& a) {
        const int64_t k = element_number++;
        return a.kind == kSymInt ? LeaveOpen(NumberHole::As::kElement, a, k).toInt() : ToInt(a);
      });
    }
    case TypeKind::FloatType:
      return ListOf<double>(arg, count, ToDouble);
    case TypeKind::BoolType:
      return ListOf<bool>(arg, count, [](const TenonArg& a) { return a.i != 0; });
    default:
      break;
  }
  if (arg.kind != kList) Refuse(arg, type.str());
  if (element.kind() == TypeKind::TensorType) {
    c10::List<at::Tensor> list;
    for (int64_t k = 0; k < arg.list_size; ++k) {
      if (arg.list[k].kind == kTensor)
        holes_.push_back({values_.size(), k, static_cast<int32_t>(arg.list[k].i), WindowOf(arg.list[k])});
      list.push_back(IsNumber(arg.list[k]) ? WrappedNumber(arg.list[k]) : at::Tensor());
    }
    return list;
  }
  if (element.kind() == TypeKind::OptionalType &&
      element.castRaw<c10::OptionalType>()->getElementType()->kind() == TypeKind::TensorType) {
    c10::List<std::optional<at::Tensor>> list;
    for (int64_t k = 0; k < arg.list_size; ++k) {
      if (arg.list[k].kind == kTensor)
        holes_.push_back({values_.size(), k, static_cast<int32_t>(arg.list[k].i), WindowOf(arg.list[k])});
      list.push_back(std::nullopt);
    }
    return list;
  }
  c10::impl::GenericList list(type.getElementType());
  for (int64_t k = 0; k < arg.list_size; ++k) {
    if (arg.list[k].kind == kSymInt) Refuse(arg.list[k], element.str());
    list.push_back(Convert(arg.list[k], element, std::nullopt));
  }
  return list;
}

}  // namespace tenon::torch_host
