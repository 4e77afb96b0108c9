#include "tools/hlo-run/run_cpu.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "runtime/executable.h"
#include "runtime/host.h"

namespace tenon {
namespace {

using Clock = std::chrono::steady_clock;

double Since(Clock::time_point start) { return std::chrono::duration<double, std::milli>(Clock::now() - start).count(); }

// Memory of a dense array in its shape's own layout; literals are row-major.
struct Buffer {
  Shape shape;
  std::vector<int64_t> sizes, strides;
  std::vector<std::byte> bytes;

  explicit Buffer(const Shape& s) : shape(s), sizes(s.constant_dims()) {
    for (Dim d : s.strides()) strides.push_back(d.constant());
    bytes.resize(std::max<int64_t>(1, s.byte_size().constant()));
  }

  TenonTensor Tensor() {
    return {.tensor = nullptr,
            .data = bytes.data(),
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
    const int64_t width = ByteWidth(shape.element_type());
    ForEach([&](int64_t here, int64_t there) { std::memcpy(bytes.data() + here, from.bytes() + there, width); });
  }

  Literal ToLiteral() const {
    Literal literal(Shape::Array(shape.element_type(), sizes));
    const int64_t width = ByteWidth(shape.element_type());
    if (literal.num_elements() == 0) return literal;
    std::byte* to = literal.mutable_bytes();
    ForEach([&](int64_t here, int64_t there) { std::memcpy(to + there, bytes.data() + here, width); });
    return literal;
  }
};

}  // namespace

absl::StatusOr<CpuRun> RunOnCpu(const Module& module, absl::Span<const Literal> args, const CompileOptions& options,
                                int repeat) {
  std::vector<Buffer> inputs, outputs;
  for (size_t i = 0; i < args.size(); ++i) {
    const Shape& shape = module.entry()->parameter(static_cast<int64_t>(i))->shape();
    if (!shape.is_array()) return absl::UnimplementedError("the CPU backend takes array parameters");
    inputs.emplace_back(shape).Fill(args[i]);
  }
  for (const Shape& leaf : FlattenShape(module.entry()->root()->shape())) {
    if (!leaf.is_array()) return absl::UnimplementedError("the CPU backend returns arrays");
    outputs.emplace_back(leaf);
  }
  CpuRun run;
  const auto start = Clock::now();
  absl::StatusOr<Program> program = CompileToProgram(module.Clone(), BindingOf(module), options);
  if (!program.ok()) return program.status();
  absl::StatusOr<std::shared_ptr<Executable>> executable =
      Executable::Create(*std::move(program), NativeCodeLoader(), DefaultHost());
  if (!executable.ok()) return executable.status();
  run.compile_ms = Since(start);
  run.best_run_us = 1e30;
  for (int n = 0; n < std::max(1, repeat); ++n) {
    std::vector<TenonTensor> in, out;
    for (Buffer& b : inputs) in.push_back(b.Tensor());
    for (Buffer& b : outputs) out.push_back(b.Tensor());
    const auto begin = Clock::now();
    const RunResult result = (*executable)->Run(in.data(), out.data());
    run.best_run_us = std::min(run.best_run_us, Since(begin) * 1e3);
    if (result.code != TENON_OK) return absl::InternalError(result.error);
  }
  for (const Buffer& b : outputs) run.outputs.push_back(b.ToLiteral());
  return run;
}

}  // namespace tenon
