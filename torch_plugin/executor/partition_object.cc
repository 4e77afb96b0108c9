#include "torch_plugin/executor/partition_object.h"

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "torch_plugin/aten/partition/partition.h"
#include "torch_plugin/executor/gil.h"

namespace tenon::torch_host {
namespace {

// One of array.array's, borrowed for a call.
template <typename T>
class Numbers {
 public:
  ~Numbers() {
    if (view_.obj != nullptr) PyBuffer_Release(&view_);
  }
  bool Take(PyObject* object) {
    if (PyObject_GetBuffer(object, &view_, PyBUF_SIMPLE) == 0) return true;
    view_.obj = nullptr;
    return false;
  }
  std::span<const T> span() const { return {static_cast<const T*>(view_.buf), static_cast<size_t>(view_.len) / sizeof(T)}; }

 private:
  Py_buffer view_{};
};

// Operands are earlier nodes, and everything has the size that it should.
bool WellFormed(const aten::JointGraph& g) {
  const size_t n = g.traits.size();
  if (g.bytes.size() != n || g.argument_bytes.size() != n || g.operand_begin.size() != n + 1 || g.operand_begin[0] != 0) return false;
  if (g.operand_begin[n] != static_cast<int64_t>(g.operands.size())) return false;
  for (size_t node = 0; node < n; ++node) {
    if (g.operand_begin[node] > g.operand_begin[node + 1]) return false;
    for (int32_t k = g.operand_begin[node]; k < g.operand_begin[node + 1]; ++k)
      if (g.operands[k] < 0 || static_cast<size_t>(g.operands[k]) >= node) return false;
  }
  for (const auto outputs : {g.forward_outputs, g.backward_outputs})
    for (const int32_t output : outputs)
      if (output < 0 || static_cast<size_t>(output) >= n) return false;
  return true;
}

PyObject* List(const std::vector<int32_t>& numbers) {
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(numbers.size()));
  if (list == nullptr) return nullptr;
  for (size_t k = 0; k < numbers.size(); ++k) {
    PyObject* number = PyLong_FromLong(numbers[k]);
    if (number == nullptr) {
      Py_DECREF(list);
      return nullptr;
    }
    PyList_SET_ITEM(list, static_cast<Py_ssize_t>(k), number);
  }
  return list;
}

PyObject* Cut(PyObject*, PyObject* args) {
  PyObject* given[7];
  if (!PyArg_ParseTuple(args, "OOOOOOO", &given[0], &given[1], &given[2], &given[3], &given[4], &given[5], &given[6])) return nullptr;
  Numbers<uint32_t> traits;
  Numbers<int64_t> bytes, argument_bytes;
  Numbers<int32_t> operand_begin, operands, forward_outputs, backward_outputs;
  if (!traits.Take(given[0]) || !bytes.Take(given[1]) || !argument_bytes.Take(given[2]) || !operand_begin.Take(given[3]) ||
      !operands.Take(given[4]) || !forward_outputs.Take(given[5]) || !backward_outputs.Take(given[6]))
    return nullptr;
  const aten::JointGraph graph = {.traits = traits.span(), .bytes = bytes.span(), .argument_bytes = argument_bytes.span(),
                                  .operand_begin = operand_begin.span(), .operands = operands.span(),
                                  .forward_outputs = forward_outputs.span(), .backward_outputs = backward_outputs.span()};
  if (!WellFormed(graph)) {
    PyErr_SetString(PyExc_ValueError, "partition: the arrays describe no graph");
    return nullptr;
  }
  std::variant<aten::Partition, std::string> cut;
  {
    NoGil no_gil;
    cut = aten::PartitionJointGraph(graph);
  }
  if (const auto* reason = std::get_if<std::string>(&cut)) return PyUnicode_FromString(reason->c_str());
  const auto& parts = std::get<aten::Partition>(cut);
  return Py_BuildValue("NNNL", List(parts.saved), List(parts.forward), List(parts.backward), static_cast<long long>(parts.saved_bytes));
}

constexpr std::pair<const char*, uint32_t> kTraits[] = {
    {"INPUT", aten::kInput},       {"TANGENT", aten::kTangent},           {"STATIC", aten::kStatic},
    {"CONSTANT", aten::kConstant}, {"GETITEM", aten::kGetitem},           {"FUSIBLE", aten::kFusible},
    {"FUSES_ANYTHING", aten::kFusesAnything}, {"VIEW", aten::kView},      {"RECOMPUTABLE", aten::kRecomputable},
    {"ALWAYS_FREE", aten::kAlwaysFree},       {"NO_TENSOR", aten::kNoTensor}, {"FORWARD_ONLY", aten::kForwardOnly},
};

PyMethodDef kCut = {"partition", Cut, METH_VARARGS,
                    "partition(traits: array('I'), bytes: array('q'), argument_bytes: array('q'), operand_begin: array('i'), "
                    "operands: array('i'), forward_outputs: array('i'), backward_outputs: array('i')) -> "
                    "(saved, forward, backward, saved_bytes), nodes by number, or why there is no cut"};

}  // namespace

int AddPartition(PyObject* module) {
  PyObject* traits = PyDict_New();
  if (traits == nullptr) return -1;
  for (const auto& [name, bit] : kTraits) {
    PyObject* number = PyLong_FromUnsignedLong(bit);
    const int failed = number == nullptr || PyDict_SetItemString(traits, name, number) != 0;
    Py_XDECREF(number);
    if (failed) {
      Py_DECREF(traits);
      return -1;
    }
  }
  if (PyModule_AddObject(module, "PARTITION_TRAITS", traits) != 0) {
    Py_DECREF(traits);
    return -1;
  }
  PyObject* function = PyCFunction_New(&kCut, nullptr);
  if (function == nullptr || PyModule_AddObject(module, "partition", function) != 0) {
    Py_XDECREF(function);
    return -1;
  }
  return 0;
}

}  // namespace tenon::torch_host
