#include "torch_plugin/executor/size_programs_object.h"

#include <c10/core/SafePyObject.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/utils/object_ptr.h>

#include <string_view>
#include <utility>

#include "torch_plugin/executor/executable_object.h"
#include "torch_plugin/executor/gil.h"
#include "torch_plugin/executor/run.h"

namespace tenon::torch_host {
namespace {

using Reader = SizePrograms::Reader;
using Sizes = SizePrograms::Sizes;

bool ReadReader(size_t inputs, PyObject* item, Reader* reader) {
  const char* kind;
  long long input, axis;
  if (!PyArg_ParseTuple(item, "sLL", &kind, &input, &axis)) return false;
  static constexpr std::pair<std::string_view, Reader::Kind> kKinds[] = {{"number", Reader::Kind::kNumber},
                                                                         {"size", Reader::Kind::kSize},
                                                                         {"stride", Reader::Kind::kStride},
                                                                         {"offset", Reader::Kind::kOffset}};
  for (const auto& [name, value] : kKinds) {
    if (name != kind) continue;
    if (input < 0 || static_cast<size_t>(input) >= inputs || axis < 0) break;
    *reader = {value, input, axis};
    return true;
  }
  PyErr_Format(PyExc_ValueError, "a reader of the sizes: wanted a number of an input, got (\"%s\", %lld, %lld)", kind, input, axis);
  return false;
}

PyObject* ToObject(const Sizes& sizes) {
  THPObjectPtr tuple(PyTuple_New(static_cast<Py_ssize_t>(sizes.size())));
  for (size_t k = 0; tuple && k < sizes.size(); ++k) {
    PyObject* item = sizes[k].has_value() ? PyLong_FromLongLong(*sizes[k]) : Py_NewRef(Py_None);
    if (item == nullptr) return nullptr;
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(k), item);
  }
  return tuple.release();
}

bool ReadSizes(const SizePrograms& programs, PyObject* sequence, Sizes* sizes) {
  THPObjectPtr items(PySequence_Fast(sequence, "wanted a sequence of sizes"));
  if (!items) return false;
  for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(items.get()); ++k) {
    PyObject* item = PySequence_Fast_GET_ITEM(items.get(), k);
    if (item == Py_None) {
      sizes->push_back(std::nullopt);
      continue;
    }
    sizes->push_back(PyLong_AsLongLong(item));
    if (PyErr_Occurred() != nullptr) return false;
  }
  if (sizes->size() == programs.readers().size()) return true;
  PyErr_Format(PyExc_ValueError, "sizes of a program: wanted %zu numbers, got %zu", programs.readers().size(), sizes->size());
  return false;
}

std::shared_ptr<CalleeCell> ReadCell(PyObject* object) {
  const std::shared_ptr<CalleeCell>* cell = CellOf(object);
  if (cell == nullptr) PyErr_Format(PyExc_TypeError, "wanted an Executable, got %s", Py_TYPE(object)->tp_name);
  return cell == nullptr ? nullptr : *cell;
}

std::optional<SizePrograms::Program> CallMake(PyObject* make, const Sizes& sizes) {
  Gil gil;
  THPObjectPtr told(ToObject(sizes));
  THPObjectPtr made(told ? PyObject_CallOneArg(make, told.get()) : nullptr);
  if (!made) ThrowPythonError();
  if (made.get() == Py_None) return std::nullopt;
  PyObject* executable;
  long long bytes;
  if (!PyArg_ParseTuple(made.get(), "OL", &executable, &bytes)) ThrowPythonError();
  SizePrograms::Program program{sizes, ReadCell(executable), bytes};
  if (program.cell == nullptr) ThrowPythonError();
  return program;
}

const char* NameOf(SizePrograms::Verdict verdict) {
  using Verdict = SizePrograms::Verdict;
  return verdict == Verdict::kKept      ? "kept"
         : verdict == Verdict::kDropped ? "dropped"
         : verdict == Verdict::kUnused  ? "unused"
                                        : "replaced";
}

void CallJudged(PyObject* judged, const Sizes& sizes, SizePrograms::Verdict verdict, double ratio) {
  if (!InterpreterIsAlive()) return;
  Gil gil;
  THPObjectPtr told(ToObject(sizes));
  THPObjectPtr done(told ? PyObject_CallFunction(judged, "Osd", told.get(), NameOf(verdict), ratio) : nullptr);
  if (!done) ThrowPythonError();
}

}  // namespace

std::shared_ptr<SizePrograms> MakeSizePrograms(size_t inputs, PyObject* args) {
  PyObject *sequence, *make, *judged;
  SizePrograms::Bounds bounds;
  long long most_bytes;
  if (!PyArg_ParseTuple(args, "OddLOO", &sequence, &bounds.hot_ns, &bounds.worth, &most_bytes, &make, &judged)) return nullptr;
  bounds.most_bytes = most_bytes;
  THPObjectPtr items(PySequence_Fast(sequence, "wanted a sequence of readers"));
  if (!items) return nullptr;
  std::vector<Reader> readers(static_cast<size_t>(PySequence_Fast_GET_SIZE(items.get())));
  for (size_t k = 0; k < readers.size(); ++k) {
    if (!ReadReader(inputs, PySequence_Fast_GET_ITEM(items.get(), static_cast<Py_ssize_t>(k)), &readers[k])) return nullptr;
  }
  auto hold = [](PyObject* callable) { return std::make_shared<c10::SafePyObject>(Py_NewRef(callable), getPyInterpreter()); };
  return std::make_shared<SizePrograms>(
      std::move(readers), bounds, [held = hold(make)](const Sizes& sizes) { return CallMake(held->ptr(getPyInterpreter()), sizes); },
      [held = hold(judged)](const Sizes& sizes, SizePrograms::Verdict verdict, double ratio) {
        CallJudged(held->ptr(getPyInterpreter()), sizes, verdict, ratio);
      });
}

bool AddNeededProgram(SizePrograms& programs, PyObject* args) {
  PyObject *sequence, *executable;
  if (!PyArg_ParseTuple(args, "OO", &sequence, &executable)) return false;
  SizePrograms::Program program;
  if (!ReadSizes(programs, sequence, &program.sizes)) return false;
  program.cell = ReadCell(executable);
  if (program.cell == nullptr) return false;
  programs.AddNeeded(std::move(program));
  return true;
}

}  // namespace tenon::torch_host
