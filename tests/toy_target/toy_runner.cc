#include "tests/toy_target/toy_runner.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "hlo/check.h"
#include "runtime/program/binding.h"

namespace tenon::toy {
namespace {

// A tensor of a literal's elements in memory of its space.
class Tensor {
 public:
  Tensor(PrimitiveType type, std::vector<int64_t> sizes, std::vector<int64_t> strides, int32_t space)
      : type_(type), sizes_(std::move(sizes)), strides_(std::move(strides)), space_(space) {
    int64_t extent = 1;
    for (size_t d = 0; d < sizes_.size(); ++d) {
      if (sizes_[d] == 0) extent = 0;
      if (extent > 0) extent += (sizes_[d] - 1) * strides_[d];
    }
    const auto bytes = static_cast<size_t>(extent * ByteWidth(type));
    if (space_ == 0) host_.assign(bytes, ToyMemory::kPoison);
    data_ = space_ == 0 ? host_.data() : TheMemory().Allocate(bytes);
  }
  ~Tensor() {
    if (space_ != 0 && data_ != nullptr) TheMemory().Free(data_);
  }
  Tensor(const Tensor&) = delete;

  bool ok() const { return space_ == 0 || data_ != nullptr; }
  TenonTensor tensor() const {
    return {nullptr, data_, sizes_.data(), strides_.data(), static_cast<int32_t>(type_), static_cast<int32_t>(sizes_.size())};
  }

  absl::Status Fill(const Literal& literal) {
    return Visit([&](std::byte* here, int64_t at, int64_t width) {
      std::memcpy(here, literal.bytes() + at * width, static_cast<size_t>(width));
    });
  }
  absl::StatusOr<Literal> Read() {
    if (space_ != 0) TENON_RETURN_IF_ERROR(TheMemory().Drain(ToyHost()->stream(nullptr, space_)));
    Literal literal(Shape::Array(type_, sizes_));
    if (literal.num_elements() == 0) return literal;
    std::byte* to = literal.mutable_bytes();
    TENON_RETURN_IF_ERROR(
        Visit([&](std::byte* here, int64_t at, int64_t width) { std::memcpy(to + at * width, here, static_cast<size_t>(width)); }));
    return literal;
  }

 private:
  template <typename F>
  absl::Status Visit(F&& visit) {
    const int64_t width = ByteWidth(type_);
    int64_t count = 1;
    for (int64_t d : sizes_) count *= d;
    for (int64_t at = 0; at < count; ++at) {
      int64_t offset = 0, rest = at;
      for (size_t d = sizes_.size(); d-- > 0; rest /= sizes_[d]) offset += rest % sizes_[d] * strides_[d];
      auto* here = static_cast<std::byte*>(data_) + offset * width;
      if (space_ != 0) {
        TENON_ASSIGN_OR_RETURN(here, TheMemory().At(here, width));
      }
      visit(here, at, width);
    }
    return absl::OkStatus();
  }

  const PrimitiveType type_;
  const std::vector<int64_t> sizes_, strides_;
  const int32_t space_;
  std::vector<std::byte> host_;
  void* data_ = nullptr;
};

template <typename F>
int64_t CountSteps(const Program& program, F&& counts) {
  int64_t n = 0;
  for (const Region& region : program.regions) {
    for (const Step& step : region.steps) n += counts(step) ? 1 : 0;
  }
  return n;
}

}  // namespace

absl::StatusOr<Program> CompileForToy(const Module& module, CompileOptions options) {
  options.targets.push_back(MakeToy());
  options.verify_passes = true;
  return CompileToProgram(module.Clone(), BindingOf(module), options);
}

absl::StatusOr<ToyRunner> ToyRunner::Make(Program program, const TenonHost* host) {
  ToyRunner runner;
  CompileOptions options;
  options.targets = {MakeToy()};
  TENON_ASSIGN_OR_RETURN(runner.executable_, Executable::Create(std::move(program), LoadersOf(options), host));
  return runner;
}

absl::StatusOr<std::vector<Literal>> ToyRunner::Run(const std::vector<Literal>& leaves, std::vector<Literal>* after) const {
  std::vector<std::unique_ptr<Tensor>> in, out;
  std::vector<TenonTensor> inputs, outputs;
  const Program& p = program();
  TENON_CHECK(p.inputs.size() == leaves.size(), "arguments");
  for (size_t i = 0; i < p.inputs.size(); ++i) {
    if (p.inputs[i].kind != InputSpec::Kind::kTensor) {  // a token
      inputs.push_back({.ndim = -1});
      continue;
    }
    in.push_back(std::make_unique<Tensor>(p.inputs[i].dtype, p.inputs[i].dims, p.inputs[i].strides, p.inputs[i].space));
    if (!in.back()->ok()) return absl::ResourceExhaustedError("an argument of the test");
    TENON_RETURN_IF_ERROR(in.back()->Fill(leaves[i]));
    inputs.push_back(in.back()->tensor());
  }
  for (const OutputSpec& o : p.outputs) {
    if (o.kind != OutputKind::kFresh) {
      out.push_back(nullptr);
      outputs.push_back({.ndim = -1});
      continue;
    }
    out.push_back(std::make_unique<Tensor>(o.dtype, o.dims, o.strides, o.space));
    if (!out.back()->ok()) return absl::ResourceExhaustedError("a result of the test");
    outputs.push_back(out.back()->tensor());
  }
  const RunResult result = executable_->Run(inputs.data(), outputs.data());
  const absl::Status drained = TheMemory().Drain(ToyHost()->stream(nullptr, kSpace));
  if (after != nullptr) {
    after->clear();
    for (const auto& tensor : in) {
      TENON_ASSIGN_OR_RETURN(Literal literal, tensor->Read());
      after->push_back(std::move(literal));
    }
  }
  if (result.code != TENON_OK) return absl::Status(result.kind, result.error);
  TENON_RETURN_IF_ERROR(drained);
  std::vector<Literal> results;
  for (const auto& tensor : out) {
    if (tensor == nullptr) {
      results.emplace_back(Shape::Token());
      continue;
    }
    TENON_ASSIGN_OR_RETURN(Literal literal, tensor->Read());
    results.push_back(std::move(literal));
  }
  return results;
}

int64_t LaunchesOf(const Program& program) {
  return CountSteps(program, [](const Step& step) {
    const auto* kernel = std::get_if<KernelStep>(&step.body);
    return kernel != nullptr && kernel->launch.has_value();
  });
}

int64_t TransfersOf(const Program& program) {
  return CountSteps(program, [&](const Step& step) {
    const auto* copy = std::get_if<CopyStep>(&step.body);
    return copy != nullptr && program.values[copy->from.value].space != program.values[copy->to.value].space;
  });
}

}  // namespace tenon::toy
