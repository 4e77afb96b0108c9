// A C++ program that builds a graph through the C seam, compiles it for one size and runs it, for test_seam.py: LibTorch's tensors and
// operators, no Python. Prints "ok", or what is wrong.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/tenon_c.h"

namespace {

int32_t F32() { return tenon_dtype_from_name("f32"); }

TenonTensor Describe(const at::Tensor& t) {
  return {t.unsafeGetTensorImpl(), t.data_ptr(), t.sizes().data(), t.strides().data(), F32(), static_cast<int32_t>(t.dim())};
}

// An operator of one tensor, by the name of its overload: "aten.erf.default".
void* Prepare(void*, const TenonOpSpec* spec, char** error) {
  const std::string name = spec->overload;
  const size_t last = name.rfind('.');
  const std::string overload = name.substr(last + 1);
  const auto found = c10::Dispatcher::singleton().findSchema({"aten::" + name.substr(5, last - 5), overload == "default" ? "" : overload});
  if (name.rfind("aten.", 0) == 0 && found.has_value() && found->schema().arguments().size() == 1) return new c10::OperatorHandle(*found);
  *error = strdup(("no operator of one tensor: " + name).c_str());
  return nullptr;
}

int calls = 0;

int Call(void*, TenonOpCall* call) {
  const TenonTensor& x = call->operands[0];
  const at::Tensor operand = at::from_blob(x.data, at::IntArrayRef(x.sizes, x.ndim), at::IntArrayRef(x.strides, x.ndim), at::kFloat);
  const auto op = static_cast<c10::OperatorHandle*>(call->op)->typed<at::Tensor(const at::Tensor&)>();
  at::Tensor result = op.call(operand);
  call->results[0] = Describe(result);
  result.unsafeReleaseTensorImpl();
  ++calls;
  return 0;
}

TenonHost MakeHost() {
  TenonHost host = {};
  host.size = sizeof(TenonHost);
  host.version = TENON_ABI_VERSION;
  host.spaces = 1;
  host.allocate = [](void*, size_t bytes) { return std::aligned_alloc(64, (bytes + 127) / 64 * 64); };
  host.deallocate = [](void*, void* memory, size_t) { std::free(memory); };
  host.parallel_for = [](void*, int64_t begin, int64_t end, int64_t, void (*fn)(void*, int64_t, int64_t), void* arg) {
    if (begin < end) fn(arg, begin, end);
  };
  host.num_threads = [](void*) { return 1; };
  host.op_prepare = Prepare;
  host.op_release = [](void*, void* op) { delete static_cast<c10::OperatorHandle*>(op); };
  host.op_call = Call;
  host.tensor_release = [](void*, void* tensor) {
    if (tensor != nullptr) c10::raw::intrusive_ptr::decref(static_cast<c10::TensorImpl*>(tensor));
  };
  host.tensor_retain = [](void*, void* tensor) { c10::raw::intrusive_ptr::incref(static_cast<c10::TensorImpl*>(tensor)); };
  host.tensor_clone = [](void*, TenonTensor*) { return 1; };
  host.cache_release = [](void*, void*) {};
  host.log = [](void*, int, const char* text) { std::fprintf(stderr, "%s\n", text); };
  host.interrupted = [](void*) { return 0; };
  host.tracing = [](void*) { return 0; };
  return host;
}

[[noreturn]] void Fail(const std::string& what, char* error = nullptr) {
  std::printf("%s%s%s\n", what.c_str(), error != nullptr ? ": " : "", error != nullptr ? error : "");
  std::exit(1);
}
void Want(bool holds, const char* what, char* error = nullptr) {
  if (!holds) Fail(what, error);
}

TenonArg Arg(int32_t kind, int64_t i) {
  TenonArg arg = {};
  arg.kind = kind;
  arg.i = i;
  return arg;
}
TenonArg Tensor(int64_t value) { return Arg(1, value); }
TenonArg Int(int64_t n) { return Arg(2, n); }
TenonArg Text(int32_t kind, const char* s) {
  TenonArg arg = Arg(kind, 0);
  arg.s = s;
  return arg;
}
TenonArg List(const std::vector<TenonArg>& elements) {
  TenonArg arg = Arg(7, 0);
  arg.list = elements.data();
  arg.list_size = static_cast<int64_t>(elements.size());
  return arg;
}
constexpr int32_t kString = 6, kSymInt = 12;

// A tensor f32[s0,n] (or f32[rows,n] where rows is a number), row-major.
struct Matrix {
  Matrix(int64_t rows, int64_t columns) : sizes{rows, columns}, strides{columns, 1} {
    meta.dtype = F32();
    meta.ndim = 2;
    meta.sizes = sizes;
    meta.strides = strides;
    if (rows == 0) meta.expressions = expressions;
  }
  Matrix(const Matrix&) = delete;
  int64_t sizes[2], strides[2];
  const char* expressions[5] = {"s0", nullptr, nullptr, nullptr, nullptr};
  TenonMeta meta = {};
};

int64_t Node(TenonGraph* graph, const char* op, const std::vector<TenonArg>& args, const char* name, const TenonMeta& meta) {
  TenonNode node = {};
  node.op = op;
  node.args = args.data();
  node.num_args = static_cast<int64_t>(args.size());
  node.names = &name;
  node.metas = &meta;
  node.num_results = 1;
  node.source = "cpp_graph.cc:1";
  char* error = nullptr;
  const int64_t value = tenon_graph_node(graph, &node, &error);
  Want(value >= 0, op, error);
  return value;
}

// (x, w) -> erf(x w) + (0, 1, 2, 3), 2 s0 + 1; w is a constant of the framework's.
TenonGraph* BuildGraph() {
  char* error = nullptr;
  TenonGraph* graph = tenon_graph_new("from_cpp", &error);
  Want(graph != nullptr, "tenon_graph_new", error);
  Want(tenon_graph_symbol(graph, "s0", 2, 1000, 100, &error) == 0, "symbol", error);
  const Matrix x(0, 16), w(16, 4), y(0, 4), row(1, 4);
  const float numbers[] = {0, 1, 2, 3};
  const int64_t of_x = tenon_graph_input(graph, "x", &x.meta, &error), of_w = tenon_graph_constant(graph, "w", &w.meta, &error);
  const int64_t of_row = tenon_graph_literal(graph, "row", &row.meta, numbers, sizeof(numbers), &error);
  Want(of_x >= 0 && of_w >= 0 && of_row >= 0, "values", error);
  const int64_t product = Node(graph, "aten.mm.default", {Tensor(of_x), Tensor(of_w)}, "product", y.meta);
  const int64_t erf = Node(graph, "aten.erf.default", {Tensor(product)}, "erf", y.meta);
  const int64_t sum = Node(graph, "aten.add.Tensor", {Tensor(erf), Tensor(of_row), Int(1)}, "sum", y.meta);
  const TenonArg outputs[] = {Tensor(sum), Text(kSymInt, "2*s0+1")};
  Want(tenon_graph_return(graph, outputs, 2, &error) == 0, "return", error);
  return graph;
}

void CompileAndRun(const TenonGraph* graph, const TenonHost& host, int64_t rows, bool native) {
  const at::Tensor x = at::randn({rows, 16}), w = at::randn({16, 4});
  const TenonTensor constant = Describe(w);
  const std::vector<TenonArg> symbol = {Text(kString, "s0"), Int(rows)}, symbols = {List(symbol)};
  const std::vector<TenonArg> disabled = {Text(kString, "aten.erf.default")};
  const std::vector<TenonOption> options = {{"symbols", List(symbols)},
                                            {"disable_lowering", List(disabled)},
                                            {"verify_passes", Arg(4, 0)},  // which prints
                                            {"tier", Text(kString, native ? "native" : "eager_program")}};
  char* error = nullptr;
  TenonExecutable* e = tenon_compile(graph, options.data(), static_cast<int64_t>(options.size()), &constant, 1, &host, &error);
  // mm has two tensors: this host has no such operator, so only the compiled program can be.
  if (!native) {
    return Want(e == nullptr && std::strstr(error, "no operator of one tensor: aten.mm.default") != nullptr, "the eager program", error);
  }
  Want(e != nullptr, "tenon_compile", error);
  const TenonSignature& s = *tenon_signature(e);
  Want(s.native != 0, s.reason);
  Want(s.num_inputs == 1 && s.inputs[0].kind == 0 && s.inputs[0].sizes[0] == rows && (s.inputs[0].flags & TENON_INPUT_MUTATED) == 0,
       "the signature's inputs");
  Want(s.num_outputs == 2 && s.outputs[0].kind == 0 && s.outputs[0].sizes[0] == rows && s.outputs[1].kind == 5, "the signature's outputs");
  const at::Tensor got = at::empty({rows, 4});
  const TenonTensor input = Describe(x);
  TenonTensor outputs[] = {Describe(got), {}};
  const int before = calls;
  Want(tenon_run(e, &input, outputs, &error) == TENON_OK, "tenon_run", error);
  Want(at::allclose(got, at::erf(at::mm(x, w)) + at::arange(4, at::kFloat), 1e-4, 1e-5), "erf(x w) + row is wrong");
  Want(reinterpret_cast<int64_t>(outputs[1].data) == 2 * rows + 1, "2 s0 + 1 is wrong");
  Want(calls == before + 1, "aten.erf is the host's one operator");
  const at::Tensor other = at::randn({rows + 1, 16});
  const TenonTensor wrong = Describe(other);
  const int code = tenon_run(e, &wrong, outputs, &error);
  Want(code == TENON_ERROR && std::strstr(error, "compiled for") != nullptr, "an input of another size was taken", error);
  tenon_string_free(error);
  tenon_executable_release(e);
}

}  // namespace

int main() {
  const TenonHost host = MakeHost();
  TenonGraph* graph = BuildGraph();
  for (const int64_t rows : {8, 5}) CompileAndRun(graph, host, rows, /*native=*/true);
  CompileAndRun(graph, host, 8, /*native=*/false);
  tenon_graph_release(graph);
  const TenonTextCounts counts = tenon_text_counts();
  Want(counts.graphs_printed + counts.graphs_parsed + counts.modules_printed + counts.modules_parsed == 0, "a text was made");
  std::printf("ok\n");
  return 0;
}
