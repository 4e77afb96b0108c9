#include "tests/backends/kernel_runner.h"

#include <chrono>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "backends/cpu/cpu.h"
#include "backends/cpu/emit/codegen.h"
#include "backends/cpu/jit/jit.h"
#include "backends/driver/compile.h"
#include "hlo/check.h"
#include "runtime/guarded_memory.h"

namespace tenon {
namespace {

// Between the elements of a result, if its strides leave room.
constexpr std::byte kGap{0xa5};

// TENON_GUARD's, or an end that faults: never none.
MemoryGuard Guard() {
  const MemoryGuard asked = GuardOfEnvironment();
  return asked == MemoryGuard::kOff ? MemoryGuard::kEnd : asked;
}

// Memory that faults when it is touched outside.
class Block {
 public:
  explicit Block(int64_t bytes) : memory_(GuardedAllocate(static_cast<size_t>(bytes), Guard())), bytes_(bytes) {}
  std::byte* data() const { return static_cast<std::byte*>(memory_.get()); }
  int64_t size() const { return bytes_; }

 private:
  struct Free {
    void operator()(void* memory) const { GuardedFree(memory); }
  };
  std::unique_ptr<void, Free> memory_;
  int64_t bytes_;
};

int64_t RoundUp(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Bytes that strides may reach, and row-major <-> strided copies.
struct Strided {
  std::vector<int64_t> dims, strides;
  int64_t width;

  int64_t elements() const {
    int64_t n = 1;
    for (int64_t d : dims) n *= d;
    return n;
  }
  int64_t extent_bytes() const {
    int64_t last = 0;
    for (size_t i = 0; i < dims.size(); ++i) {
      if (dims[i] == 0) return 0;
      last += (dims[i] - 1) * strides[i];
    }
    return (last + 1) * width;
  }
  template <typename F>
  void ForEach(F f) const {
    std::vector<int64_t> at(dims.size(), 0);
    for (int64_t n = 0; n < elements(); ++n) {
      int64_t offset = 0;
      for (size_t i = 0; i < dims.size(); ++i) offset += at[i] * strides[i];
      f(n * width, offset * width);
      for (size_t i = dims.size(); i-- > 0 && ++at[i] == dims[i];) at[i] = 0;
    }
  }
};

}  // namespace

Instruction* WrapEntryAsFusion(Module& module) {
  Computation* fused = module.entry();
  Computation* main = module.AddComputation("main");
  std::vector<Instruction*> params;
  for (const Instruction* p : fused->parameters())
    params.push_back(main->AddParameter(p->parameter_number(), p->shape()));
  Instruction* fusion = main->Add(Opcode::kFusion, fused->root()->shape(), params);
  fusion->mutable_attrs().set(Attr::kCalls, fused);
  fusion->mutable_attrs().set(Attr::kFusionKind, std::string("kLoop"));
  main->set_root(fusion);
  module.set_entry(main);
  return fusion;
}

KernelRequest DenseRequest(const Instruction* fusion) {
  KernelRequest request{.fusion = fusion};
  auto dense = [](const Shape& s) {
    DimVector strides = s.strides();
    return OperandLayout{.strides = {strides.begin(), strides.end()}};
  };
  for (const Instruction* o : fusion->operands()) request.operands.push_back(dense(o->shape()));
  for (const Shape& s : FlattenShape(fusion->shape())) request.results.push_back(dense(s));
  return request;
}

absl::StatusOr<KernelRunner> KernelRunner::Make(const KernelRequest& request,
                                                const RunnerOptions& options) {
  KernelRunner r;
  r.request_ = request;
  TENON_ASSIGN_OR_RETURN(CpuTarget target, MakeCpuTarget(options.isa));
  TENON_ASSIGN_OR_RETURN(
      r.kernel_, PlanCpuKernelWith(request, target, options.excess_precision, options.plan));
  ModuleRequest object = ObjectRequest(target, "test");
  object.emit = [&](llvm::Module& m) -> absl::Status {
    TENON_RETURN_IF_ERROR(r.kernel_->Emit(m, "kernel"));
    return options.break_ir ? options.break_ir(m) : absl::OkStatus();
  };
  if (options.keep_text) {
    object.llvm_ir = &r.llvm_ir_;
    object.assembly = &r.assembly_;
  }
  TENON_ASSIGN_OR_RETURN(r.object_, CompileModules({&object, 1}, 1)[0]);
  std::vector<uint8_t> image;
  AppendObject(&image, r.object_);
  const std::vector<std::string> symbols = {"kernel"};
  TENON_ASSIGN_OR_RETURN(std::unique_ptr<LoadedCode> code,
                         CpuLoader()->Load(image, symbols));
  r.code_ = std::move(code);
  return r;
}

struct KernelRunner::Memory {
  std::vector<Block> buffers;
  std::vector<Strided> views;
  std::vector<void*> pointers;
  std::vector<int64_t> args;
  std::unique_ptr<Block> scratch;
  int64_t error = 0, begin = 0, end = 0;
};

absl::Status KernelRunner::Prepare(absl::Span<const Literal> args, const RunOptions& options,
                                   Memory* m) const {
  auto value = [&](Dim d) {
    return Evaluate(d, [&](std::string_view name) -> absl::StatusOr<int64_t> {
      auto it = options.symbols.find(std::string(name));
      if (it == options.symbols.end()) return absl::NotFoundError(std::string(name));
      return it->second;
    });
  };
  auto add = [&](const Shape& shape, const OperandLayout& layout) -> absl::Status {
    Strided v{.width = ByteWidth(shape.element_type())};
    for (int64_t d = 0; d < shape.rank(); ++d) {
      TENON_ASSIGN_OR_RETURN(int64_t n, value(shape.dim(d)));
      TENON_ASSIGN_OR_RETURN(int64_t s, value(layout.strides[static_cast<size_t>(d)]));
      v.dims.push_back(n);
      v.strides.push_back(s);
    }
    // Element-aligned and no better, unless asked for.
    const int64_t bytes = options.aligned ? RoundUp(v.extent_bytes()) : v.extent_bytes();
    m->buffers.emplace_back(bytes);
    std::memset(m->buffers.back().data(), static_cast<int>(kGap), static_cast<size_t>(bytes));
    m->pointers.push_back(m->buffers.back().data());
    m->views.push_back(std::move(v));
    return absl::OkStatus();
  };
  m->buffers.reserve(request_.operands.size() + request_.results.size());
  for (size_t i = 0; i < request_.operands.size(); ++i) {
    TENON_RETURN_IF_ERROR(
        add(request_.fusion->operand(static_cast<int64_t>(i))->shape(), request_.operands[i]));
    std::byte* to = static_cast<std::byte*>(m->pointers.back());
    const int64_t width = m->views.back().width;
    m->views.back().ForEach([&](int64_t from, int64_t at) {
      std::memcpy(to + at, args[i].bytes() + from, static_cast<size_t>(width));
    });
  }
  const std::vector<Shape> leaves = FlattenShape(request_.fusion->shape());
  for (size_t i = 0; i < leaves.size(); ++i)
    TENON_RETURN_IF_ERROR(add(leaves[i], request_.results[i]));
  if (options.in_place >= 0) m->pointers[request_.operands.size()] = m->pointers[static_cast<size_t>(options.in_place)];
  for (const LaunchPlan::Pair& copy : kernel_->info().copies) {
    const size_t from = static_cast<size_t>(copy.operand), to = request_.operands.size() + static_cast<size_t>(copy.leaf);
    if (m->pointers[to] == m->pointers[from]) continue;
    std::vector<std::byte> dense(static_cast<size_t>(args[from].size_bytes()));
    const size_t width = static_cast<size_t>(m->views[from].width);
    m->views[from].ForEach([&](int64_t at, int64_t in) {
      std::memcpy(dense.data() + at, static_cast<std::byte*>(m->pointers[from]) + in, width);
    });
    m->views[to].ForEach([&](int64_t at, int64_t in) {
      std::memcpy(static_cast<std::byte*>(m->pointers[to]) + in, dense.data() + at, width);
    });
  }
  if (kernel_->info().has_error_word) m->pointers.push_back(&m->error);
  for (Dim d : kernel_->info().size_args) {
    TENON_ASSIGN_OR_RETURN(int64_t n, value(d));
    m->args.push_back(n);
  }
  for (uint64_t l : kernel_->info().literals) m->args.push_back(static_cast<int64_t>(l));
  m->scratch = std::make_unique<Block>(RoundUp(kernel_->info().scratch_bytes));
  TENON_ASSIGN_OR_RETURN(m->begin, value(kernel_->info().begin));
  TENON_ASSIGN_OR_RETURN(m->end, value(kernel_->info().end));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Literal>> KernelRunner::Run(absl::Span<const Literal> args,
                                                       const RunOptions& options) const {
  Memory m;
  TENON_RETURN_IF_ERROR(Prepare(args, options, &m));
  const int64_t n = m.end - m.begin,
                piece = std::max<int64_t>(1, (n + options.pieces - 1) / options.pieces);
  for (int64_t b = m.begin; b < m.end; b += piece) {
    code_->functions()[0](m.pointers.data(), m.args.data(), b, std::min(b + piece, m.end),
                          m.scratch->data());
  }
  error_word_ = m.error;
  std::vector<Literal> results;
  const std::vector<Shape> leaves = FlattenShape(request_.fusion->shape());
  for (size_t i = 0; i < leaves.size(); ++i) {
    const size_t at = request_.operands.size() + i;
    const Strided& v = m.views[at];
    Literal l(Shape::Array(leaves[i].element_type(), v.dims));
    std::byte* out = l.mutable_bytes();
    const Block& buffer = m.buffers[at];
    std::vector<bool> written(static_cast<size_t>(buffer.size()), false);
    auto* base = static_cast<std::byte*>(m.pointers[at]);
    const bool own = base == buffer.data();  // not the memory of an operand
    v.ForEach([&](int64_t to, int64_t from) {
      std::memcpy(out + to, base + from, static_cast<size_t>(v.width));
      for (int64_t k = 0; own && k < v.width; ++k) written[static_cast<size_t>(from + k)] = true;
    });
    for (int64_t k = 0; own && k < buffer.size(); ++k) {
      if (!written[static_cast<size_t>(k)] && buffer.data()[k] != kGap) {
        return absl::InternalError(
            absl::StrCat("result ", i, ": memory between its elements was written, ", k, " bytes from its start"));
      }
    }
    results.push_back(std::move(l));
  }
  return results;
}

absl::StatusOr<double> KernelRunner::Time(absl::Span<const Literal> args, int repeats) const {
  Memory m;
  TENON_RETURN_IF_ERROR(Prepare(args, RunOptions{.aligned = true}, &m));
  double best = 1e30;
  for (int i = 0; i < repeats; ++i) {
    auto start = std::chrono::steady_clock::now();
    code_->functions()[0](m.pointers.data(), m.args.data(), m.begin, m.end, m.scratch->data());
    best = std::min(
        best, std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
                  .count());
  }
  return best;
}

}  // namespace tenon
