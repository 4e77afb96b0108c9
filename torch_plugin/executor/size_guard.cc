#include "torch_plugin/executor/size_guard.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/object_ptr.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::torch_host {
namespace {

// Where a value of the frame lies: a local, then attributes and items of it.
struct Path {
  THPObjectPtr local;
  std::vector<std::pair<bool, THPObjectPtr>> steps;  // (an item, its key) or (an attribute, its name)
};

// A number of such a value.
struct Number {
  enum class Kind { kItself, kSize, kStride, kOffset };
  size_t path;
  Kind kind;
  int64_t axis;
};

enum class Op { kNumber, kConstant, kAdd, kSub, kMul, kFloorDiv, kMod, kMin, kMax, kEq, kNe, kLt, kLe, kAnd, kOr, kNot, kRequire };
constexpr std::pair<std::string_view, Op> kOps[] = {
    {"number", Op::kNumber}, {"constant", Op::kConstant}, {"+", Op::kAdd}, {"-", Op::kSub},   {"*", Op::kMul}, {"//", Op::kFloorDiv},
    {"%", Op::kMod},         {"min", Op::kMin},           {"max", Op::kMax}, {"==", Op::kEq}, {"!=", Op::kNe}, {"<", Op::kLt},
    {"<=", Op::kLe},         {"and", Op::kAnd},           {"or", Op::kOr}, {"not", Op::kNot}, {"require", Op::kRequire}};
constexpr std::pair<std::string_view, Number::Kind> kKinds[] = {{"itself", Number::Kind::kItself},
                                                                {"size", Number::Kind::kSize},
                                                                {"stride", Number::Kind::kStride},
                                                                {"offset", Number::Kind::kOffset}};

struct Instruction {
  Op op;
  int64_t argument;  // a number's place, a constant
};

template <typename Table>
auto Lookup(const Table& table, std::string_view name) -> std::optional<decltype(table[0].second)> {
  for (const auto& [text, value] : table) {
    if (text == name) return value;
  }
  return std::nullopt;
}

class SizeGuard {
 public:
  SizeGuard(std::vector<Path> paths, std::vector<Number> numbers, std::vector<Instruction> code, THPObjectPtr otherwise)
      : paths_(std::move(paths)), numbers_(std::move(numbers)), code_(std::move(code)), otherwise_(std::move(otherwise)) {}

  // Of a frame's locals. What this cannot decide, `otherwise` does: other types than tensors and ints, numbers beyond 64 bits.
  PyObject* operator()(PyObject* locals) {
    std::optional<bool> holds;
    try {
      holds = Decide(locals);
    } catch (const std::exception&) {
    }
    PyErr_Clear();
    return holds ? PyBool_FromLong(*holds) : PyObject_CallOneArg(otherwise_.get(), locals);
  }

 private:
  std::optional<bool> Decide(PyObject* locals) {
    if (!PyDict_Check(locals)) return std::nullopt;
    std::vector<THPObjectPtr> objects;
    objects.reserve(paths_.size());
    for (Path& path : paths_) {
      objects.push_back(Follow(path, locals));
      if (!objects.back()) return std::nullopt;
    }
    std::vector<int64_t> numbers(numbers_.size());
    for (size_t k = 0; k < numbers.size(); ++k) {
      if (!Read(numbers_[k], objects[numbers_[k].path].get(), &numbers[k])) return std::nullopt;
    }
    return Run(numbers);
  }

  static THPObjectPtr Follow(Path& path, PyObject* locals) {
    THPObjectPtr at(Py_XNewRef(PyDict_GetItemWithError(locals, path.local.get())));
    for (auto& [item, key] : path.steps) {
      if (!at) break;
      at = item ? PyObject_GetItem(at.get(), key.get()) : PyObject_GetAttr(at.get(), key.get());
    }
    return at;
  }

  static bool Read(const Number& number, PyObject* object, int64_t* value) {
    if (number.kind == Number::Kind::kItself) {
      if (!PyLong_CheckExact(object)) return false;
      *value = PyLong_AsLongLong(object);
      return *value != -1 || PyErr_Occurred() == nullptr;
    }
    if (!THPVariable_CheckExact(object)) return false;
    const at::Tensor& tensor = THPVariable_Unpack(object);
    if (tensor.layout() != c10::kStrided || tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) return false;
    if (number.kind != Number::Kind::kOffset && number.axis >= tensor.dim()) return false;
    const size_t axis = static_cast<size_t>(number.axis);
    *value = number.kind == Number::Kind::kSize     ? tensor.sizes()[axis]
             : number.kind == Number::Kind::kStride ? tensor.strides()[axis]
                                                    : tensor.storage_offset();
    return true;
  }

  // nullopt: a number that does not fit, a division by zero.
  std::optional<bool> Run(const std::vector<int64_t>& numbers) const {
    std::vector<int64_t> stack;
    stack.reserve(code_.size());
    for (const Instruction& i : code_) {
      if (i.op == Op::kNumber || i.op == Op::kConstant) {
        stack.push_back(i.op == Op::kNumber ? numbers[static_cast<size_t>(i.argument)] : i.argument);
        continue;
      }
      const int64_t b = stack.back();
      if (i.op == Op::kNot) {
        stack.back() = b == 0;
        continue;
      }
      stack.pop_back();
      if (i.op == Op::kRequire) {
        if (b == 0) return false;
        continue;
      }
      if (!Apply(i.op, &stack.back(), b)) return std::nullopt;
    }
    return true;
  }

  // *a becomes *a op b.
  static bool Apply(Op op, int64_t* a, int64_t b) {
    switch (op) {
      case Op::kAdd: return !__builtin_add_overflow(*a, b, a);
      case Op::kSub: return !__builtin_sub_overflow(*a, b, a);
      case Op::kMul: return !__builtin_mul_overflow(*a, b, a);
      case Op::kFloorDiv:
      case Op::kMod: {
        if (b == 0 || b == -1) return false;
        const int64_t rest = *a % b, less = rest != 0 && (rest < 0) != (b < 0);
        *a = op == Op::kMod ? rest + less * b : *a / b - less;
        return true;
      }
      case Op::kMin: *a = std::min(*a, b); return true;
      case Op::kMax: *a = std::max(*a, b); return true;
      case Op::kEq: *a = *a == b; return true;
      case Op::kNe: *a = *a != b; return true;
      case Op::kLt: *a = *a < b; return true;
      case Op::kLe: *a = *a <= b; return true;
      case Op::kAnd: *a = *a != 0 && b != 0; return true;
      case Op::kOr: *a = *a != 0 || b != 0; return true;
      default: return false;
    }
  }

  std::vector<Path> paths_;
  const std::vector<Number> numbers_;
  const std::vector<Instruction> code_;
  THPObjectPtr otherwise_;
};

// Operands that are on the stack and those that an operation takes; -1: no code of a guard.
int64_t DepthAfter(int64_t depth, Op op) {
  if (op == Op::kNumber || op == Op::kConstant) return depth + 1;
  const int64_t taken = op == Op::kNot || op == Op::kRequire ? 1 : 2;
  return depth < taken ? -1 : depth - (op == Op::kNot ? 0 : 1);
}

// False: a Python error is set.
bool ReadPath(PyObject* item, Path* path) {
  PyObject *local, *steps;
  if (!PyArg_ParseTuple(item, "OO!", &local, &PyTuple_Type, &steps)) return false;
  path->local = Py_NewRef(local);
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(steps); ++k) {
    int is_item;
    PyObject* key;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(steps, k), "pO", &is_item, &key)) return false;
    path->steps.emplace_back(is_item != 0, Py_NewRef(key));
  }
  return true;
}

bool ReadNumber(PyObject* item, size_t paths, Number* number) {
  long long path, axis;
  const char* kind;
  if (!PyArg_ParseTuple(item, "LsL", &path, &kind, &axis)) return false;
  const auto known = Lookup(kKinds, kind);
  if (known && path >= 0 && static_cast<size_t>(path) < paths && axis >= 0) {
    *number = {static_cast<size_t>(path), *known, axis};
    return true;
  }
  PyErr_Format(PyExc_ValueError, "size_guard: wanted a number of a path, got (%lld, \"%s\", %lld)", path, kind, axis);
  return false;
}

bool ReadInstruction(PyObject* item, size_t numbers, Instruction* instruction, int64_t* depth) {
  const char* name;
  long long argument;
  if (!PyArg_ParseTuple(item, "sL", &name, &argument)) return false;
  const auto op = Lookup(kOps, name);
  if (op) *depth = DepthAfter(*depth, *op);
  if (op && *depth >= 0 && (*op != Op::kNumber || (argument >= 0 && static_cast<size_t>(argument) < numbers))) {
    *instruction = {*op, argument};
    return true;
  }
  PyErr_Format(PyExc_ValueError, "size_guard: wanted code for a stack, got (\"%s\", %lld)", name, argument);
  return false;
}

// Each item of a tuple by read(item, &element).
template <typename T, typename Read>
bool ReadAll(PyObject* tuple, std::vector<T>* all, const Read& read) {
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(tuple); ++k) {
    all->emplace_back();
    if (!read(PyTuple_GET_ITEM(tuple, k), &all->back())) return false;
  }
  return true;
}

constexpr const char* kName = "torch_tenon size guard";

PyObject* Check(PyObject* self, PyObject* locals) {
  auto* guard = static_cast<SizeGuard*>(PyCapsule_GetPointer(self, kName));
  return guard == nullptr ? nullptr : (*guard)(locals);
}
PyMethodDef kCheck = {"size_guard", Check, METH_O, "size_guard(locals) -> bool"};

PyObject* Make(PyObject*, PyObject* args) {
  PyObject *path_items, *number_items, *code_items, *otherwise;
  if (!PyArg_ParseTuple(args, "O!O!O!O", &PyTuple_Type, &path_items, &PyTuple_Type, &number_items, &PyTuple_Type, &code_items,
                        &otherwise)) {
    return nullptr;
  }
  std::vector<Path> paths;
  std::vector<Number> numbers;
  std::vector<Instruction> code;
  int64_t depth = 0;
  if (!ReadAll(path_items, &paths, ReadPath) ||
      !ReadAll(number_items, &numbers, [&](PyObject* item, Number* number) { return ReadNumber(item, paths.size(), number); }) ||
      !ReadAll(code_items, &code, [&](PyObject* item, Instruction* i) { return ReadInstruction(item, numbers.size(), i, &depth); })) {
    return nullptr;
  }
  auto guard = std::make_unique<SizeGuard>(std::move(paths), std::move(numbers), std::move(code), THPObjectPtr(Py_NewRef(otherwise)));
  THPObjectPtr capsule(PyCapsule_New(guard.get(), kName, [](PyObject* self) {
    delete static_cast<SizeGuard*>(PyCapsule_GetPointer(self, kName));
  }));
  if (!capsule) return nullptr;
  (void)guard.release();
  return PyCFunction_New(&kCheck, capsule.get());
}
PyMethodDef kMake = {"size_guard", Make, METH_VARARGS,
                     "size_guard(paths, numbers, code, otherwise) -> guard(locals) -> bool; torch_tenon.size_guards says what they are"};

}  // namespace

int AddSizeGuard(PyObject* module) {
  THPObjectPtr make(PyCFunction_New(&kMake, nullptr));
  return make ? PyModule_AddObjectRef(module, "size_guard", make.get()) : -1;
}

}  // namespace tenon::torch_host
