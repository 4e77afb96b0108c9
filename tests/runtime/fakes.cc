#include "tests/runtime/fakes.h"

#include <cstdlib>
#include <cstring>
#include <thread>

#include "absl/status/status.h"

namespace tenon::testing {
namespace {

std::vector<int64_t> RowMajorStrides(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (int d = static_cast<int>(sizes.size()) - 2; d >= 0; --d)
    strides[d] = strides[d + 1] * sizes[d + 1];
  return strides;
}

int64_t Count(const std::vector<int64_t>& sizes) {
  int64_t n = 1;
  for (int64_t s : sizes) n *= s;
  return n;
}

float* F(void* p) { return static_cast<float*>(p); }

void AddOne(void* const* p, const int64_t*, int64_t begin, int64_t end, void*) {
  for (int64_t i = begin; i < end; ++i) F(p[1])[i] = F(p[0])[i] + 1;
}
void Scale(void* const* p, const int64_t* args, int64_t begin, int64_t end, void*) {
  float factor;
  std::memcpy(&factor, &args[0], sizeof(factor));
  for (int64_t i = begin; i < end; ++i) F(p[1])[i] = F(p[0])[i] * factor;
}
// args[0]: columns. Goes through the scratch, so that pieces sharing one would show.
void RowSum(void* const* p, const int64_t* args, int64_t begin, int64_t end, void* scratch) {
  for (int64_t row = begin; row < end; ++row) {
    std::memcpy(scratch, F(p[0]) + row * args[0], args[0] * sizeof(float));
    float sum = 0;
    for (int64_t c = 0; c < args[0]; ++c) sum += F(scratch)[c];
    F(p[1])[row] = sum;
  }
}
void CheckNegative(void* const* p, const int64_t* args, int64_t begin, int64_t end, void*) {
  for (int64_t i = begin; i < end; ++i) {
    if (F(p[0])[i] < 0)
      static_cast<std::atomic<int64_t>*>(p[1])->store(args[0] + 1, std::memory_order_relaxed);
  }
}
void Decrement(void* const* p, const int64_t*, int64_t, int64_t, void*) {
  --*static_cast<int32_t*>(p[0]);
}
void Positive(void* const* p, const int64_t*, int64_t, int64_t, void*) {
  *static_cast<uint8_t*>(p[1]) = *static_cast<int32_t*>(p[0]) > 0;
}

class Loaded final : public LoadedCode {
 public:
  explicit Loaded(std::vector<KernelFn> functions) { functions_ = std::move(functions); }
};

class Loader final : public CodeLoader {
 public:
  std::string_view target() const override { return kHostTarget; }
  absl::StatusOr<std::unique_ptr<LoadedCode>> Load(std::span<const uint8_t>,
                                                   std::span<const std::string> symbols) override {
    static const std::map<std::string, KernelFn> known = {
        {"add_one", AddOne},      {"scale", Scale},
        {"row_sum", RowSum},      {"check_negative", CheckNegative},
        {"decrement", Decrement}, {"positive", Positive}};
    std::vector<KernelFn> functions;
    for (const std::string& symbol : symbols) {
      const auto found = known.find(symbol);
      if (found == known.end()) return absl::NotFoundError("unresolved symbol " + symbol);
      functions.push_back(found->second);
    }
    return std::make_unique<Loaded>(std::move(functions));
  }
};

}  // namespace

TenonHost ThreadedHost(int threads) {
  static std::atomic<int> count;
  count = threads;
  TenonHost host = *DefaultHost();
  host.num_threads = [](void*) { return count.load(); };
  host.parallel_for = [](void*, int64_t begin, int64_t end, int64_t, void (*run)(void*, int64_t, int64_t), void* data) {
    std::vector<std::thread> others;
    for (int64_t k = begin + 1; k < end; ++k) others.emplace_back(run, data, k, k + 1);
    run(data, begin, begin + 1);
    for (std::thread& t : others) t.join();
  };
  return host;
}

FakeHost::FakeHost() : host_(*DefaultHost()) {
  host_.context = this;
  host_.allocate = Allocate;
  host_.deallocate = Deallocate;
  host_.op_prepare = Prepare;
  host_.op_release = ReleaseOp;
  host_.op_call = Call;
  host_.tensor_release = Release;
  host_.tensor_retain = Retain;
  host_.tensor_clone = Clone;
  host_.cache_release = ReleaseWrapper;
}

void* FakeHost::Allocate(void* context, size_t bytes) {
  FakeHost& self = Self(context);
  ++self.allocations_;
  if (self.Fails()) return nullptr;
  self.live_bytes_ += static_cast<int64_t>(bytes);
  return DefaultHost()->allocate(nullptr, bytes);
}
void FakeHost::Deallocate(void* context, void* memory, size_t bytes) {
  Self(context).live_bytes_ -= static_cast<int64_t>(bytes);
  DefaultHost()->deallocate(nullptr, memory, bytes);
}

FakeTensor* FakeHost::NewTensor(std::vector<int64_t> sizes, float value) {
  ++live_tensors_;
  auto* t = new FakeTensor;
  t->storage.assign(Count(sizes), value);
  t->strides = RowMajorStrides(sizes);
  t->sizes = std::move(sizes);
  t->data = t->storage.data();
  return t;
}
TenonTensor FakeHost::Handle(FakeTensor* t) {
  return {t,
          t->data,
          t->sizes.data(),
          t->strides.data(),
          static_cast<int32_t>(PrimitiveType::kF32),
          static_cast<int32_t>(t->sizes.size())};
}

void* FakeHost::Prepare(void* context, const TenonOpSpec* spec, char** error) {
  if (std::string(spec->overload) == "test.unknown") {
    *error = strdup("no such operator");
    return nullptr;
  }
  FakeHost& self = Self(context);
  if (self.Fails()) {
    *error = strdup("out of memory");
    return nullptr;
  }
  ++self.live_ops_;
  return new Op{spec->overload, spec->rule, spec->num_operands};
}
void FakeHost::ReleaseOp(void* context, void* op) {
  --Self(context).live_ops_;
  delete static_cast<Op*>(op);
}

int FakeHost::Call(void* context, TenonOpCall* call) {
  FakeHost& self = Self(context);
  const Op& op = *static_cast<Op*>(call->op);
  ++self.allocations_;
  if (self.throws_in_ >= 0 && self.throws_in_-- == 0) throw std::bad_alloc();
  if (op.name == "test.fail" || self.Fails()) return 1;
  for (int32_t k = 0; k < op.operands; ++k) {
    if (call->operands[k].tensor != nullptr) {
      ++self.whole_operands_;
    } else if (call->cache[k] == nullptr) {
      call->cache[k] = new int;
      ++self.live_wrappers_;
    }
  }
  const TenonTensor& a = call->operands[0];
  const std::vector<int64_t> sizes(a.sizes, a.sizes + a.ndim);
  if (op.name == "test.view") {
    FakeTensor* t = self.NewTensor(sizes, 0);
    t->data = F(a.data);
    call->results[0] = self.Handle(t);
    return 0;
  }
  if (op.rule != 0) call->results[0] = self.Handle(self.NewTensor(sizes, 0));
  for (int64_t i = 0; i < Count(sizes); ++i)
    F(call->results[0].data)[i] = F(a.data)[i] + F(call->operands[1].data)[i];
  return 0;
}

void FakeHost::Release(void* context, void* tensor) {
  auto* t = static_cast<FakeTensor*>(tensor);
  if (--t->references > 0) return;
  --Self(context).live_tensors_;
  delete t;
}
void FakeHost::Retain(void*, void* tensor) { ++static_cast<FakeTensor*>(tensor)->references; }
int FakeHost::Clone(void* context, TenonTensor* tensor) {
  FakeHost& self = Self(context);
  ++self.clones_;
  if (std::exchange(self.clone_fails_, false)) return 1;
  auto* old = static_cast<FakeTensor*>(tensor->tensor);
  FakeTensor* copy = self.NewTensor(old->sizes, 0);
  std::copy(old->data, old->data + copy->storage.size(), copy->data);
  *tensor = self.Handle(copy);
  Release(context, old);
  return 0;
}
void FakeHost::ReleaseWrapper(void* context, void* wrapper) {
  --Self(context).live_wrappers_;
  delete static_cast<int*>(wrapper);
}

CodeLoader* FakeLoader() {
  static Loader loader;
  return &loader;
}

View MakeView(int32_t value, PrimitiveType dtype, std::vector<int64_t> dims, int64_t byte_offset) {
  View v{.value = value, .dtype = dtype, .byte_offset = byte_offset};
  v.strides = RowMajorStrides(dims);
  v.dims = std::move(dims);
  return v;
}
int32_t AddValue(Program& p, ValueKind kind, int64_t index, int64_t bytes, int64_t offset) {
  p.values.push_back({.kind = kind, .index = index, .offset = offset, .bytes = bytes});
  return static_cast<int32_t>(p.values.size()) - 1;
}
int32_t AddInput(Program& p, PrimitiveType dtype, std::vector<int64_t> dims) {
  p.inputs.push_back({.dtype = dtype, .dims = dims, .strides = RowMajorStrides(dims)});
  return AddValue(p, ValueKind::kInput, static_cast<int64_t>(p.inputs.size()) - 1,
                  Count(dims) * ByteWidth(dtype));
}
int32_t AddOutput(Program& p, PrimitiveType dtype, std::vector<int64_t> dims) {
  p.outputs.push_back({.dtype = dtype, .dims = dims, .strides = RowMajorStrides(dims)});
  return AddValue(p, ValueKind::kOutput, static_cast<int64_t>(p.outputs.size()) - 1,
                  Count(dims) * ByteWidth(dtype));
}
int32_t AddKernel(Program& p, const std::string& symbol, int64_t scratch_bytes) {
  p.kernels.push_back({.symbol = symbol, .scratch_bytes = scratch_bytes});
  if (p.code.empty()) p.code.push_back({});
  p.code[0].object = {1};
  return static_cast<int32_t>(p.kernels.size()) - 1;
}
Step KernelCall(int32_t kernel, std::vector<View> operands, int64_t range, int64_t grain) {
  KernelStep step{.kernel = kernel,
                  .operands = std::move(operands),
                  .num_results = 1,
                  .end = range,
                  .grain = grain};
  return {.body = std::move(step), .name = "kernel"};
}
Step FrameworkCall(const std::string& op, std::vector<View> operands, View result,
                   ResultRule rule) {
  FrameworkStep step{.overload = op,
                     .operands = std::move(operands),
                     .rule = rule,
                     .results = {std::move(result)}};
  for (size_t k = 0; k < step.operands.size(); ++k)
    step.args.push_back(FrameworkArg::Tensor(static_cast<int64_t>(k)));
  return {.body = std::move(step), .name = op};
}

Array::Array(std::vector<int64_t> dims, float value) : sizes(std::move(dims)) {
  strides = RowMajorStrides(sizes);
  data.assign(Count(sizes), value);
}
TenonTensor Array::tensor() {
  return {nullptr,
          data.data(),
          sizes.data(),
          strides.data(),
          static_cast<int32_t>(PrimitiveType::kF32),
          static_cast<int32_t>(sizes.size())};
}

}  // namespace tenon::testing
