#include "backends/driver/literal_executable.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "backends/driver/run_time_sizes.h"
#include "hlo/check.h"
#include "hlo/verifier.h"
#include "passes/pass.h"
#include "runtime/fork.h"
#include "runtime/host/plain_host.h"

namespace tenon {
namespace {

using Clock = std::chrono::steady_clock;

double Since(Clock::time_point start) { return std::chrono::duration<double, std::milli>(Clock::now() - start).count(); }

struct GiveBack {
  size_t bytes;
  void operator()(std::byte* memory) const { DefaultHost()->deallocate(nullptr, memory, bytes); }
};

// Memory of a dense array in its shape's own layout, of the host that allocates in tests and tools; literals are row-major. What
// nobody stores is 0xfb in every byte.
struct Buffer {
  Shape shape;
  std::vector<int64_t> sizes, strides;
  std::unique_ptr<std::byte, GiveBack> bytes;

  explicit Buffer(const Shape& s) : shape(s) {
    if (!s.is_array()) return;
    sizes = s.constant_dims();
    for (Dim d : s.strides()) strides.push_back(d.constant());
    const size_t size = static_cast<size_t>(s.byte_size().constant());
    bytes = {static_cast<std::byte*>(DefaultHost()->allocate(nullptr, size)), GiveBack{size}};
    TENON_CHECK(bytes != nullptr, absl::StrCat("out of memory: wanted ", size, " bytes"));
    std::memset(bytes.get(), 0xfb, size);  // not zeros: what is never stored shows
  }

  TenonTensor Tensor() {
    return {.tensor = nullptr,
            .data = bytes.get(),
            .sizes = sizes.data(),
            .strides = strides.data(),
            .dtype = static_cast<int32_t>(shape.element_type()),
            .ndim = static_cast<int32_t>(sizes.size())};
  }

  // Calls visit(offset here, offset in a row-major literal) in bytes, for each element.
  template <typename Visit>
  void ForEach(Visit&& visit) const {
    const int64_t width = ByteWidth(shape.element_type()), n = shape.num_elements_constant();
    std::vector<int64_t> index(sizes.size(), 0);
    for (int64_t i = 0; i < n; ++i) {
      int64_t offset = 0;
      for (size_t d = 0; d < index.size(); ++d) offset += index[d] * strides[d];
      visit(offset * width, i * width);
      for (size_t d = index.size(); d-- > 0 && ++index[d] == sizes[d];) index[d] = 0;
    }
  }

  void Fill(const Literal& from) {
    if (!shape.is_array()) return;
    const int64_t width = ByteWidth(shape.element_type());
    ForEach([&](int64_t here, int64_t there) { std::memcpy(bytes.get() + here, from.bytes() + there, width); });
  }

  Literal ToLiteral() const {
    if (!shape.is_array()) return Literal(shape);
    Literal literal(Shape::Array(shape.element_type(), sizes));
    const int64_t width = ByteWidth(shape.element_type());
    if (literal.num_elements() == 0) return literal;
    std::byte* to = literal.mutable_bytes();
    ForEach([&](int64_t here, int64_t there) { std::memcpy(to + there, bytes.get() + here, width); });
    return literal;
  }
};

// Arrays without bounded dimensions, and tokens, which are nothing.
bool CanPass(const Shape& shape) {
  return absl::c_all_of(FlattenShape(shape), [](const Shape& leaf) {
    return leaf.is_array() ? !IsBounded(leaf) : leaf.element_type() == PrimitiveType::kToken;
  });
}

// Bounded dimensions count as static here.
bool HasSymbols(const Shape& shape) {
  return absl::c_any_of(FlattenShape(shape), [](const Shape& leaf) {
    return absl::c_any_of(leaf.dims(), [](Dim d) { return !d.is_constant(); });
  });
}

// The argument's type and rank, or its sizes too, where they are numbers, are the parameter's. Whether sizes are what symbols make of them
// is the executable's to say.
bool MayPass(const Shape& parameter, const Shape& argument) {
  if (parameter.is_tuple() != argument.is_tuple() || parameter.elements().size() != argument.elements().size()) return false;
  for (size_t i = 0; i < parameter.elements().size(); ++i) {
    if (!MayPass(parameter.element(static_cast<int64_t>(i)), argument.element(static_cast<int64_t>(i)))) return false;
  }
  if (parameter.is_tuple()) return true;
  if (parameter.element_type() != argument.element_type() || parameter.rank() != argument.rank()) return false;
  for (int64_t d = 0; d < parameter.rank(); ++d) {
    if (parameter.dim(d).is_constant() && parameter.dim(d) != argument.dim(d)) return false;
  }
  return true;
}

// In the parameter's layout.
Shape Sized(const Shape& parameter, const Shape& argument) {
  Shape shape = parameter;
  for (size_t i = 0; i < shape.elements().size(); ++i) {
    const auto k = static_cast<int64_t>(i);
    shape.mutable_element(k) = Sized(parameter.element(k), argument.element(k));
  }
  for (int64_t d = 0; d < shape.rank(); ++d) shape.set_dim(d, argument.dim(d));
  return shape;
}

void AddInputs(const Shape& shape, const Literal& from, std::vector<Buffer>* inputs) {
  if (!shape.is_tuple()) {
    inputs->emplace_back(shape).Fill(from);
    return;
  }
  for (size_t i = 0; i < shape.elements().size(); ++i) AddInputs(shape.element(static_cast<int64_t>(i)), from.elements()[i], inputs);
}

// Puts the numbers that this call makes of a result's sizes.
absl::Status SizeOutput(const Executable& executable, const TenonTensor* inputs, int64_t output, Shape* leaf) {
  std::vector<int64_t> sizes, strides;
  TENON_RETURN_IF_ERROR(executable.OutputSizes(inputs, output, &sizes, &strides));
  for (int64_t d = 0; d < leaf->rank(); ++d) leaf->set_dim(d, sizes[static_cast<size_t>(d)]);
  const DimVector dense = leaf->strides();
  for (int64_t d = 0; d < leaf->rank(); ++d) {
    if (dense[d] == Dim(strides[static_cast<size_t>(d)]) || leaf->num_elements_constant() == 0) continue;
    return absl::InternalError(absl::StrCat("output ", output, " ", leaf->ToString(true), " has stride ",
                                            strides[static_cast<size_t>(d)], " along dim ", d));
  }
  return absl::OkStatus();
}

absl::Status RunPasses(std::initializer_list<const char*> names, Module& module) {
  PassContext context;
  for (const char* name : names) TENON_RETURN_IF_ERROR(FindPass(name)->run(module, context).status());
  return absl::OkStatus();
}

}  // namespace

// Stage by stage: sizes that depend on arrays of unknown size are found by the executable that the first sizes lead to.
struct LiteralExecutable::BySize {
  static constexpr size_t kMaxKept = 64;

  std::unique_ptr<Module> module;
  CompileOptions options;
  const TenonHost* host;
  int64_t max_grain;
  // Null while parameters are bounded: what can be known before depends on them.
  std::unique_ptr<LiteralExecutable> sizes;

  absl::Mutex mutex;
  absl::flat_hash_map<std::vector<int64_t>, std::shared_ptr<LiteralExecutable>> kept ABSL_GUARDED_BY(mutex);

  absl::Status Init() {
    for (const Instruction* p : module->entry()->parameters()) {
      if (HasSymbols(p->shape())) {
        return absl::UnimplementedError(absl::StrCat("parameter ", p->name(), " = ", p->shape().ToString(),
                                                     ": the CPU backend takes static arrays"));
      }
      if (!CanPass(p->shape())) return absl::OkStatus();
    }
    TENON_ASSIGN_OR_RETURN(const std::unique_ptr<Module> program, SizesOf(*module));
    TENON_ASSIGN_OR_RETURN(sizes, LiteralExecutable::Compile(*program, options, host, max_grain));
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<LiteralExecutable>> For(absl::Span<const Literal> args) {
    std::vector<int64_t> key;
    if (sizes != nullptr) {
      TENON_ASSIGN_OR_RETURN(const std::vector<Literal> found, sizes->Run(args));
      for (const Literal& size : found) key.push_back(size.GetAsInt64(0));
    } else {
      for (const Literal& arg : args) {
        for (const Shape& leaf : FlattenShape(arg.shape())) {
          for (Dim d : leaf.dims()) key.push_back(d.constant());
        }
      }
    }
    if (std::shared_ptr<LiteralExecutable> known = Kept(key, nullptr)) return known;
    std::unique_ptr<Module> fixed = module->Clone();
    if (sizes != nullptr) {
      TENON_RETURN_IF_ERROR(FixSizes(*fixed, key));
    } else {
      std::vector<Shape> shapes;
      for (const Literal& arg : args) shapes.push_back(arg.shape());
      TENON_RETURN_IF_ERROR(FixParameters(*fixed, shapes));
      TENON_RETURN_IF_ERROR(Verify(*fixed));  // what is no program of these sizes: a slice beyond them
    }
    TENON_ASSIGN_OR_RETURN(std::shared_ptr<LiteralExecutable> made, LiteralExecutable::Compile(*fixed, options, host, max_grain));
    return Kept(key, std::move(made));
  }

  // What is kept for the key; `made` if nothing is. Two threads may make one at once: no lock is held while compiling, since a forked
  // child must find it free.
  std::shared_ptr<LiteralExecutable> Kept(const std::vector<int64_t>& key, std::shared_ptr<LiteralExecutable> made) {
    decltype(kept) dropped;  // without the lock
    ForkSection section;
    absl::MutexLock lock(&mutex);
    if (const auto it = kept.find(key); it != kept.end()) return it->second;
    if (made == nullptr) return nullptr;
    if (kept.size() >= kMaxKept) dropped.swap(kept);
    kept.emplace(key, made);
    return made;
  }
};

absl::StatusOr<std::unique_ptr<LiteralExecutable>> LiteralExecutable::Compile(const Module& module, const CompileOptions& options,
                                                                              const TenonHost* host, int64_t max_grain) {
  auto made = std::make_unique<LiteralExecutable>();
  // What is returned may be smaller than the bound that the program states: known only after static-sizes, which in turn wants
  // bitcasts expanded.
  std::unique_ptr<Module> resolved = module.Clone();
  TENON_RETURN_IF_ERROR(RunPasses({"expand-bitcast", "static-sizes"}, *resolved));
  if (absl::c_any_of(resolved->computations(), [](const Computation* c) { return HasRunTimeSizes(*c); })) {
    TENON_RETURN_IF_ERROR(RunPasses({"order-random", "inline-calls", "static-sizes"}, *resolved));
  }
  if (HasRunTimeSizes(*resolved->entry())) {
    for (const Instruction* p : module.entry()->parameters()) made->parameters_.push_back(p->shape());
    made->by_size_ = std::make_shared<BySize>(std::move(resolved), options, host, max_grain);
    TENON_RETURN_IF_ERROR(made->by_size_->Init());
    return made;
  }
  for (const Instruction* p : module.entry()->parameters()) {
    if (!CanPass(p->shape())) {
      return absl::UnimplementedError(
          absl::StrCat("parameter ", p->name(), " = ", p->shape().ToString(), ": the CPU backend takes arrays without bounds"));
    }
    made->parameters_.push_back(p->shape());
  }
  made->leaves_ = FlattenShape(resolved->entry()->root()->shape());
  for (const Shape& leaf : made->leaves_) {
    if (!CanPass(leaf)) {
      return absl::UnimplementedError(absl::StrCat("result ", leaf.ToString(), ": the CPU backend returns arrays without bounds"));
    }
  }
  const auto start = Clock::now();
  Binding binding = BindingOf(*resolved);
  const bool away = absl::c_any_of(binding.inputs, [](const Binding::Input& in) { return in.space != 0; }) ||
                    absl::c_any_of(binding.outputs, [](const Binding::Output& out) { return out.space != 0; });
  if (away) return absl::UnimplementedError("a parameter or result lies in a device's memory; literals lie in the host's");
  TENON_ASSIGN_OR_RETURN(Program program, CompileToProgram(std::move(resolved), std::move(binding), options));
  for (Region& region : program.regions) {
    for (Step& step : region.steps) {
      auto* kernel = std::get_if<KernelStep>(&step.body);
      if (kernel != nullptr && max_grain > 0) kernel->grain = kernel->grain < 0 ? max_grain : std::min(kernel->grain, max_grain);
    }
  }
  TENON_ASSIGN_OR_RETURN(made->executable_,
                         Executable::Create(std::move(program), LoadersOf(options), host != nullptr ? host : PlainHost()));
  made->compile_ms_ = Since(start);
  return made;
}

struct LiteralExecutable::Session::Impl {
  std::shared_ptr<Executable> executable;
  std::vector<Buffer> inputs, outputs;
  std::vector<TenonTensor> in, out;
};

LiteralExecutable::Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LiteralExecutable::Session::~Session() = default;

Executable& LiteralExecutable::Session::executable() const { return *impl_->executable; }

absl::Status LiteralExecutable::Session::Run(double* run_us) {
  const auto begin = Clock::now();
  const RunResult result = impl_->executable->Run(impl_->in.data(), impl_->out.data());
  if (run_us != nullptr) *run_us = Since(begin) * 1e3;
  return result.code == TENON_OK ? absl::OkStatus() : absl::Status(result.kind, result.error);
}

std::vector<Literal> LiteralExecutable::Session::Results() const {
  std::vector<Literal> results;
  for (const Buffer& b : impl_->outputs) results.push_back(b.ToLiteral());
  return results;
}

absl::StatusOr<std::unique_ptr<LiteralExecutable::Session>> LiteralExecutable::Prepare(absl::Span<const Literal> args) const {
  if (args.size() != parameters_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("wanted ", parameters_.size(), " arguments, got ", args.size()));
  }
  if (by_size_ != nullptr) {
    TENON_ASSIGN_OR_RETURN(const std::shared_ptr<LiteralExecutable> sized, by_size_->For(args));
    return sized->Prepare(args);
  }
  auto impl = std::make_unique<Session::Impl>();
  impl->executable = executable_;
  for (size_t i = 0; i < args.size(); ++i) {
    if (!MayPass(parameters_[i], args[i].shape())) {
      return absl::InvalidArgumentError(absl::StrCat("argument ", i, ": wanted ", parameters_[i].ToString(), ", got ",
                                                     args[i].shape().ToString()));
    }
    AddInputs(Sized(parameters_[i], args[i].shape()), args[i], &impl->inputs);
  }
  for (Buffer& b : impl->inputs) impl->in.push_back(b.Tensor());
  if (absl::c_any_of(parameters_, HasSymbols)) TENON_RETURN_IF_ERROR(executable_->Check(impl->in.data()));
  for (size_t k = 0; k < leaves_.size(); ++k) {
    Shape leaf = leaves_[k];
    if (HasSymbols(leaf)) TENON_RETURN_IF_ERROR(SizeOutput(*executable_, impl->in.data(), static_cast<int64_t>(k), &leaf));
    impl->outputs.emplace_back(leaf);
  }
  for (Buffer& b : impl->outputs) impl->out.push_back(b.Tensor());
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

absl::StatusOr<std::vector<Literal>> LiteralExecutable::Run(absl::Span<const Literal> args, double* run_us) const {
  TENON_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, Prepare(args));
  TENON_RETURN_IF_ERROR(session->Run(run_us));
  return session->Results();
}

}  // namespace tenon
