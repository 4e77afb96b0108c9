// aten-eval: lowers aten::Graph text and prints the HLO, or evaluates it on given inputs.
//
//   aten-eval graph.aten                   the HLO module and what became a framework call
//   aten-eval --cases in.bin out.bin       for each case of in.bin: lower, verify, evaluate (tools/dev/check_lowering.py)
//   aten-eval --cases in.bin out.bin --target=gpu-emulated     the same, compiled for the emulated GPU; out.bin has one more text
//                                          for each case, JSON: how many instructions computed there, which were the host's
//
// in.bin: cases, each {text} {n} then n inputs, each {logical bytes, row-major} {storage bytes from the tensor's first
// element}. out.bin: one answer per case, {status} {n} then n outputs {bytes, row-major, by the output's sizes}; status is
// "ok", "check: <exception>: <message>" or an error. {x} is a u64 length and as many bytes; {n} a u64.
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "backends/driver/literal_executable.h"
#include "hlo/eval/evaluator.h"
#include "hlo/text/text.h"
#include "hlo/verifier.h"
#include "runtime/host/plain_host.h"
#include "tools/lab/gpu/emulated_target.h"
#include "tools/lab/gpu/placement.h"
#include "tools/lab/spaces.h"
#include "torch_plugin/aten/lower.h"

namespace tenon {
namespace {

std::string ReadFile(const char* path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error(std::string("cannot read ") + path);
  return {std::istreambuf_iterator<char>(in), {}};
}

class Reader {
 public:
  explicit Reader(std::string_view data) : rest_(data) {}
  bool done() const { return rest_.empty(); }
  uint64_t Number() {
    uint64_t n = 0;
    if (rest_.size() < sizeof n) throw std::runtime_error("truncated case file");
    std::memcpy(&n, rest_.data(), sizeof n);
    rest_.remove_prefix(sizeof n);
    return n;
  }
  std::string_view Bytes() {
    const uint64_t n = Number();
    if (rest_.size() < n) throw std::runtime_error("truncated case file");
    std::string_view bytes = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return bytes;
  }

 private:
  std::string_view rest_;
};

void Write(std::string* out, uint64_t n) { out->append(reinterpret_cast<const char*>(&n), sizeof n); }
void Write(std::string* out, std::string_view bytes) {
  Write(out, static_cast<uint64_t>(bytes.size()));
  out->append(bytes);
}

struct InputBytes {
  std::string_view logical, storage;
};

absl::StatusOr<Literal> ParameterValue(const Shape& shape, const Binding::Parameter& parameter,
                                       const std::vector<InputBytes>& inputs) {
  const InputBytes& input = inputs.at(parameter.index);
  const std::string_view bytes = parameter.flat_storage ? input.storage : input.logical;
  Shape dense(shape.element_type(), shape.dims());
  Literal literal(dense);
  if (static_cast<size_t>(literal.size_bytes()) > bytes.size()) {
    return absl::InvalidArgumentError(absl::StrCat("input ", parameter.index, ": wanted ", literal.size_bytes(),
                                                   " bytes, got ", bytes.size()));
  }
  if (literal.size_bytes() > 0) std::memcpy(literal.mutable_bytes(), bytes.data(), literal.size_bytes());
  return literal;
}

// Repeats the dims that have stride 0 in the caller's tensor but size 1 in the root.
std::string OutputBytes(const Literal& value, const Binding::Output& output) {
  std::vector<int64_t> sizes, have = value.shape().constant_dims();
  int64_t count = 1;
  for (Dim d : output.sizes) {
    sizes.push_back(d.constant());
    count *= d.constant();
  }
  const int64_t width = ByteWidth(value.type());
  std::string bytes(count * width, '\0');
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, at = 0, scale = 1;
    for (int64_t d = static_cast<int64_t>(sizes.size()) - 1; d >= 0; --d) {
      const int64_t index = rest % sizes[d];
      rest /= sizes[d];
      if (have[d] != 1) at += index * scale;
      scale *= have[d];
    }
    std::memcpy(bytes.data() + i * width, value.bytes() + at * width, width);
  }
  return bytes;
}

struct Answer {
  std::string status;
  std::vector<std::string> outputs;
  gpu::Placement placement;  // with a target
};

// The module's result there.
absl::StatusOr<Literal> RunOn(const std::string& name, const Module& module, const std::vector<Literal>& arguments, Answer* answer) {
  TENON_ASSIGN_OR_RETURN(std::shared_ptr<const Target> target, gpu::MakeEmulatedGpu(name));
  std::unique_ptr<Module> moved = module.Clone();
  lab::MoveInside(*moved, target->facts().space);
  CompileOptions options;
  options.evaluate = ConstantFolder();
  options.targets.push_back(std::move(target));
  std::string last;  // the module behind the last pass
  options.stages = {.take = [&](const Stage& stage) { last = stage.text; }, .wanted = 1u << static_cast<int>(StageKind::kHlo)};
  TENON_ASSIGN_OR_RETURN(const auto executable, LiteralExecutable::Compile(*moved, options, gpu::EmulatedHost(PlainHost())));
  TENON_ASSIGN_OR_RETURN(const std::unique_ptr<Module> compiled, ParseModule(last));
  answer->placement = gpu::PlacementOf(*compiled);
  TENON_ASSIGN_OR_RETURN(std::vector<Literal> leaves, executable->Run(arguments));
  return Literal::Tuple(std::move(leaves));
}

absl::StatusOr<Answer> Run(std::string_view text, const std::vector<InputBytes>& inputs, const std::string& target) {
  TENON_ASSIGN_OR_RETURN(aten::Graph graph, aten::ParseGraph(text));
  TENON_ASSIGN_OR_RETURN(aten::Lowered lowered, aten::Lower(graph));
  if (!lowered.remarks.empty()) return absl::UnimplementedError(lowered.remarks[0]);
  TENON_RETURN_IF_ERROR(Verify(*lowered.module));
  std::vector<Literal> arguments;
  for (size_t i = 0; i < lowered.binding.parameters.size(); ++i) {
    const Shape& shape = lowered.module->entry()->parameter(static_cast<int64_t>(i))->shape();
    TENON_ASSIGN_OR_RETURN(Literal value, ParameterValue(shape, lowered.binding.parameters[i], inputs));
    arguments.push_back(std::move(value));
  }
  Answer answer{.status = "ok"};
  EvalOptions options;
  options.custom_calls["tenon.check"] = [&](const Instruction& check, absl::Span<const Literal> args) {
    bool bad = false;
    for (int64_t i = 0; i < args[0].num_elements(); ++i) bad = bad || args[0].GetAsInt64(i) != 0;
    if (bad) {
      const std::string config = check.backend_config();  // {"check":k}
      const CheckSpec& spec = lowered.binding.checks.at(std::stoul(config.substr(config.find(':') + 1)));
      answer.status = absl::StrCat("check: ", spec.exception, ": ", spec.message);
    }
    return absl::StatusOr<Literal>(Literal::ScalarInt(PrimitiveType::kPred, bad));
  };
  TENON_ASSIGN_OR_RETURN(const Literal root, target.empty() ? Evaluate(*lowered.module, arguments, options)
                                                            : RunOn(target, *lowered.module, arguments, &answer));
  for (const Binding::Output& output : lowered.binding.outputs) {
    if (output.root_index < 0) {
      answer.outputs.push_back(output.kind == OutputKind::kInput ? std::string(inputs.at(output.index).logical) : "");
    } else {
      answer.outputs.push_back(OutputBytes(root.elements().at(output.root_index), output));
    }
  }
  return answer;
}

Answer RunSafely(std::string_view text, const std::vector<InputBytes>& inputs, const std::string& target) {
  try {
    absl::StatusOr<Answer> answer = Run(text, inputs, target);
    return answer.ok() ? *answer : Answer{.status = answer.status().ToString()};
  } catch (const std::exception& e) {
    return {.status = absl::StrCat("INTERNAL: ", e.what())};
  }
}

int RunCases(const char* in, const char* out, const std::string& target) {
  const std::string data = ReadFile(in);
  std::string answers;
  for (Reader reader(data); !reader.done();) {
    const std::string_view text = reader.Bytes();
    std::vector<InputBytes> inputs(reader.Number());
    for (InputBytes& input : inputs) {
      input.logical = reader.Bytes();
      input.storage = reader.Bytes();
    }
    const Answer answer = RunSafely(text, inputs, target);
    Write(&answers, std::string_view(answer.status));
    Write(&answers, static_cast<uint64_t>(answer.outputs.size()));
    for (const std::string& bytes : answer.outputs) Write(&answers, std::string_view(bytes));
    if (!target.empty()) Write(&answers, std::string_view(answer.placement.ToJson()));
  }
  std::ofstream(out, std::ios::binary) << answers;
  return 0;
}

int PrintHlo(const char* path) {
  auto graph = aten::ParseGraph(ReadFile(path));
  if (!graph.ok()) {
    std::cerr << path << ": " << graph.status().message() << "\n";
    return 1;
  }
  auto lowered = aten::Lower(*graph);
  if (!lowered.ok()) {
    std::cerr << path << ": " << lowered.status() << "\n";
    return 1;
  }
  std::cout << Print(*lowered->module);
  if (absl::Status verified = Verify(*lowered->module); !verified.ok()) {
    std::cerr << path << ": " << verified << "\n";
    return 1;
  }
  for (const std::string& remark : lowered->remarks) std::cerr << remark << "\n";
  return 0;
}

}  // namespace
}  // namespace tenon

int main(int argc, char** argv) {
  try {
    if (argc == 4 && std::strcmp(argv[1], "--cases") == 0) return tenon::RunCases(argv[2], argv[3], "");
    if (argc == 5 && std::strcmp(argv[1], "--cases") == 0 && std::strncmp(argv[4], "--target=", 9) == 0) {
      return tenon::RunCases(argv[2], argv[3], argv[4] + 9);
    }
    if (argc == 2 && argv[1][0] != '-') return tenon::PrintHlo(argv[1]);
  } catch (const std::exception& e) {
    std::cerr << "aten-eval: " << e.what() << "\n";
    return 1;
  }
  std::cerr << "usage: aten-eval graph.aten | aten-eval --cases in.bin out.bin [--target=gpu-emulated]\n";
  return 2;
}
