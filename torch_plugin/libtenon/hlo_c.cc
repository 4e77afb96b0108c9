// The C seam of torch_tenon.hlo: modules from text, the evaluator, the CPU backend on plain arrays.
#include <atomic>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "backends/driver/literal_executable.h"
#include "backends/driver/targets.h"
#include "backends/report/document.h"
#include "hlo/cost.h"
#include "hlo/eval/evaluator.h"
#include "hlo/json.h"
#include "hlo/library/custom_calls.h"
#include "hlo/library/lapack_library.h"
#include "hlo/text/text.h"
#include "hlo/verifier.h"
#include "passes/pipeline.h"
#include "passes/spaces/spaces.h"
#include "runtime/float_mode.h"
#include "runtime/fork.h"
#include "runtime/host/plain_host.h"
#include "torch_plugin/libtenon/guarded.h"
#include "torch_plugin/libtenon/handle.h"
#include "torch_plugin/libtenon/hlo_target.h"
#include "torch_plugin/libtenon/options.h"

struct TenonHlo {
  std::unique_ptr<tenon::Module> module;
  absl::Mutex mutex;  // guards executable
  std::unique_ptr<tenon::LiteralExecutable> executable;
};

struct TenonHloResult {
  std::vector<tenon::Literal> literals;
  std::vector<std::vector<int64_t>> sizes;
  std::vector<TenonTensor> leaves;
};

namespace tenon {
namespace {

TenonTensor TensorOf(const Literal& l, std::vector<int64_t>* sizes) {
  *sizes = l.shape().constant_dims();
  return {.tensor = nullptr,
          .data = const_cast<std::byte*>(l.num_elements() > 0 ? l.bytes() : nullptr),
          .sizes = sizes->data(),
          .strides = nullptr,
          .dtype = static_cast<int32_t>(l.type()),
          .ndim = static_cast<int32_t>(sizes->size())};
}

std::unique_ptr<TenonHloResult> NewResult(const Literal& root) {
  auto result = std::make_unique<TenonHloResult>();
  auto flatten = [&](auto&& self, const Literal& l) -> void {
    if (l.shape().is_array()) result->literals.push_back(l);
    for (const Literal& e : l.elements()) self(self, e);
  };
  flatten(flatten, root);
  result->sizes.resize(result->literals.size());
  for (size_t i = 0; i < result->literals.size(); ++i) {
    result->leaves.push_back(TensorOf(result->literals[i], &result->sizes[i]));
  }
  return result;
}

absl::StatusOr<Literal> Argument(const Shape& shape, absl::Span<const TenonTensor> inputs, size_t* next) {
  if (shape.is_tuple()) {
    std::vector<Literal> elements;
    for (const Shape& e : shape.elements()) {
      TENON_ASSIGN_OR_RETURN(Literal element, Argument(e, inputs, next));
      elements.push_back(std::move(element));
    }
    return Literal::Tuple(std::move(elements));
  }
  if (!shape.is_array()) return Literal(shape);
  if (*next >= inputs.size()) return absl::InvalidArgumentError(absl::StrCat("more than ", inputs.size(), " inputs wanted"));
  const size_t number = (*next)++;
  const TenonTensor& t = inputs[number];
  const absl::Span<const int64_t> sizes(t.sizes, t.ndim);
  const Shape given = Shape::Array(static_cast<PrimitiveType>(t.dtype), sizes);
  bool fits = given.element_type() == shape.element_type() && given.rank() == shape.rank();
  for (int64_t d = 0; fits && d < shape.rank(); ++d) {
    fits = shape.is_dynamic(d) ? given.constant_dim(d) <= shape.constant_dim(d) : given.dim(d) == shape.dim(d);
  }
  if (!fits) {
    return absl::InvalidArgumentError(absl::StrCat("input ", number, ": wanted ", shape.ToString(), ", got ", given.ToString()));
  }
  Literal literal(given);
  if (literal.num_elements() > 0) std::memcpy(literal.mutable_bytes(), t.data, literal.size_bytes());
  return literal;
}

absl::StatusOr<std::vector<Literal>> Arguments(const Module& module, absl::Span<const TenonTensor> inputs) {
  std::vector<Literal> args;
  size_t next = 0;
  for (const Instruction* p : module.entry()->parameters()) {
    TENON_ASSIGN_OR_RETURN(Literal arg, Argument(p->shape(), inputs, &next));
    args.push_back(std::move(arg));
  }
  if (next == inputs.size()) return args;
  return absl::InvalidArgumentError(absl::StrCat("wanted ", next, " inputs, got ", inputs.size()));
}

Json LeavesJson(const Shape& shape) {
  Json leaves = Json::array();
  for (const Shape& leaf : FlattenShape(shape)) {
    if (!leaf.is_array()) continue;
    Json dims = Json::array();
    for (Dim d : leaf.dims()) {
      if (d.is_constant()) {
        dims.push_back(d.constant());
      } else {
        dims.push_back(d.ToString());
      }
    }
    leaves.push_back({{"dtype", PrimitiveTypeName(leaf.element_type())}, {"shape", dims}});
  }
  return leaves;
}

std::vector<std::string> Names(const char* list) {
  return list == nullptr ? std::vector<std::string>() : absl::StrSplit(list, ',', absl::SkipEmpty());
}

absl::StatusOr<bool> RunPasses(Module& module, const char* passes, const char* disable) {
  PassContext context;
  context.evaluate = ConstantFolder();
  PipelineOptions options;
  options.passes = Names(passes);
  options.disable = Names(disable);
  options.verify = true;
  return RunPipeline(module, context, options);
}

std::atomic<int (*)(void)> interrupted{nullptr};

int IsInterrupted(void*) {
  int (*const ask)(void) = interrupted;
  return ask == nullptr ? 0 : ask();
}

const TenonHost* HloHost() {
  static const TenonHost host = [] {
    TenonHost h = *PlainHost();
    h.interrupted = IsInterrupted;
    return h;
  }();
  return &host;
}

// The option "target", which is ReadOptions' no more then; "cpu" if it isn't among them.
absl::StatusOr<std::string> TakeTarget(std::vector<TenonOption>* options) {
  std::string target = "cpu";
  for (const TenonOption& o : *options) {
    if (o.name == nullptr || std::string_view(o.name) != "target") continue;
    if (static_cast<FrameworkArg::Kind>(o.value.kind) != FrameworkArg::Kind::kString) {
      return absl::InvalidArgumentError("options: \"target\": wanted a string");
    }
    target = o.value.s;
  }
  std::erase_if(*options, [](const TenonOption& o) { return o.name != nullptr && std::string_view(o.name) == "target"; });
  return target;
}

// Makes the module and the options those of a page about `target`, which this machine need not be able to run: "sm_90", as hlo-opt --target
// takes it (parameters and results lie in the GPU's memory), or what UseTarget knows.
absl::Status ShowFor(const std::string& target, Module& module, CompileOptions* options) {
  if (!target.starts_with("sm_")) {
    const TenonHost* host = HloHost();
    return UseTarget(target, module, options, &host);
  }
  TENON_ASSIGN_OR_RETURN(std::shared_ptr<const Target> gpu, MakeTarget("gpu", target, /*compile_only=*/true));
  MoveSignature(module, gpu->facts().space);
  options->targets.push_back(std::move(gpu));
  return absl::OkStatus();
}

// The module's executable, made by the first who asks. Two who ask at once may both make one: no lock is held while compiling, since a
// forked child must find it free.
absl::StatusOr<LiteralExecutable*> Compiled(TenonHlo& hlo, const TenonOption* options, int64_t num_options) {
  const auto kept = [&]() -> LiteralExecutable* {
    ForkSection section;
    absl::MutexLock lock(&hlo.mutex);
    return hlo.executable.get();
  };
  if (LiteralExecutable* executable = kept()) return executable;
  const bool listed = options != nullptr && num_options > 0;
  std::vector<TenonOption> given(options, listed ? options + num_options : options);
  TENON_ASSIGN_OR_RETURN(const std::string target, TakeTarget(&given));
  TENON_ASSIGN_OR_RETURN(RequestOptions request, listed ? ReadOptions(given.data(), static_cast<int64_t>(given.size()))
                                                        : ReadOptions(options, num_options));
  request.compile.interrupted = [] { return IsInterrupted(nullptr) != 0; };
  const std::unique_ptr<Module> module = hlo.module->Clone();
  const TenonHost* host = HloHost();
  if (target != "cpu") TENON_RETURN_IF_ERROR(UseTarget(target, *module, &request.compile, &host));
  TENON_ASSIGN_OR_RETURN(std::unique_ptr<LiteralExecutable> made, LiteralExecutable::Compile(*module, request.compile, host));
  ForkSection section;
  absl::MutexLock lock(&hlo.mutex);
  if (hlo.executable == nullptr) hlo.executable = std::move(made);
  return hlo.executable.get();
}

absl::StatusOr<std::unique_ptr<TenonHloResult>> Result(absl::StatusOr<Literal> root) {
  TENON_RETURN_IF_ERROR(root.status());
  return NewResult(*root);
}

std::string Signature(const Module& module) {
  const Computation& entry = *module.entry();
  Json inputs = Json::array();
  for (const Instruction* p : entry.parameters()) {
    const Json leaves = LeavesJson(p->shape());
    for (const Json& leaf : leaves.elements()) inputs.push_back(leaf);
  }
  return Json({{"name", module.name()}, {"inputs", inputs}, {"outputs", LeavesJson(entry.root()->shape())}}).dump();
}

// A custom call whose body is on the other side of the seam.
struct ForeignCall {
  TenonHloCustomCall call;
  void* context;

  absl::StatusOr<Literal> operator()(const CustomCall& custom, absl::Span<const Literal> operands) const {
    std::vector<Literal> results;
    for (const Shape& leaf : FlattenShape(custom.result)) {
      Literal& l = results.emplace_back(Shape::Array(leaf.element_type(), leaf.constant_dims()));
      if (l.num_elements() > 0) l.mutable_bytes();
    }
    std::vector<std::vector<int64_t>> sizes(operands.size() + results.size());
    std::vector<TenonTensor> in, out;
    for (const Literal& l : operands) in.push_back(TensorOf(l, &sizes[in.size()]));
    for (const Literal& l : results) out.push_back(TensorOf(l, &sizes[operands.size() + out.size()]));
    const TenonHloCall args{.target = custom.target.c_str(),
                            .backend_config = custom.backend_config.c_str(),
                            .instruction = custom.instruction.c_str(),
                            .operands = in.data(),
                            .results = out.data(),
                            .num_operands = static_cast<int64_t>(in.size()),
                            .num_results = static_cast<int64_t>(out.size())};
    char message[TENON_HLO_MESSAGE] = "";
    if (call(context, &args, message) != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("custom-call ", custom.name, " to \"", custom.target, "\": ", message));
    }
    if (custom.result.is_tuple()) return Literal::Tuple(std::move(results));
    return std::move(results[0]);
  }
};

}  // namespace
}  // namespace tenon

extern "C" {

TenonHlo* tenon_hlo_parse(const char* text, size_t size, int flags, char** error) {
  return tenon::Released(
      [&]() -> absl::StatusOr<std::unique_ptr<TenonHlo>> {
        tenon::ParseOptions options;
        options.fill_elided_constants = (flags & TENON_HLO_FILL_ELIDED) != 0;
        options.verify = (flags & TENON_HLO_NO_VERIFY) == 0;
        auto hlo = std::make_unique<TenonHlo>();
        TENON_ASSIGN_OR_RETURN(hlo->module, tenon::ParseModule({text, size}, options));
        return hlo;
      },
      error);
}

void tenon_hlo_release(TenonHlo* hlo) { delete hlo; }

int tenon_hlo_verify(const TenonHlo* hlo, char** error) {
  const auto verify = [&]() -> absl::Status {
    const absl::Status status = tenon::Verify(*hlo->module);  // internal to a pass, the user's when asked for
    return status.ok() ? status : absl::InvalidArgumentError(status.message());
  };
  return tenon::Guarded(verify, error).ok() ? 0 : 1;
}

char* tenon_hlo_print(const TenonHlo* hlo, int flags) {
  return tenon::GuardedText(
      [&] {
        tenon::PrintOptions options;
        options.canonical = (flags & TENON_HLO_CANONICAL) != 0;
        options.percent = (flags & TENON_HLO_PERCENT) != 0;
        options.operand_shapes = (flags & TENON_HLO_OPERAND_SHAPES) != 0;
        options.metadata = (flags & TENON_HLO_NO_METADATA) == 0;
        return tenon::Print(*hlo->module, options);
      },
      nullptr);
}

char* tenon_hlo_signature(const TenonHlo* hlo) {
  return tenon::GuardedText([&] { return tenon::Signature(*hlo->module); }, nullptr);
}

char* tenon_hlo_cost(const TenonHlo* hlo, char** error) {
  return tenon::GuardedText(
      [&]() -> absl::StatusOr<std::string> {
        TENON_ASSIGN_OR_RETURN(const auto cost, tenon::AnalyzeCost(*hlo->module));
        return tenon::ToJson(cost);
      },
      error);
}

int tenon_hlo_run_passes(TenonHlo* hlo, const char* passes, const char* disable, char** error) {
  const auto run = [&]() -> absl::StatusOr<bool> {
    std::unique_ptr<tenon::LiteralExecutable> dropped;  // without the lock
    {
      absl::MutexLock lock(&hlo->mutex);
      dropped.swap(hlo->executable);
    }
    dropped.reset();
    std::unique_ptr<tenon::Module> module = hlo->module->Clone();  // what fails half-way leaves the module as it was
    TENON_ASSIGN_OR_RETURN(const bool changed, tenon::RunPasses(*module, passes, disable));
    hlo->module = std::move(module);
    return changed;
  };
  const auto changed = tenon::Guarded(run, error);
  return changed.ok() ? (*changed ? 1 : 0) : -1;
}

TenonHloResult* tenon_hlo_evaluate(const TenonHlo* hlo, const TenonTensor* inputs, int64_t num_inputs, char** error) {
  return tenon::Released(
      [&]() -> absl::StatusOr<std::unique_ptr<TenonHloResult>> {
        TENON_ASSIGN_OR_RETURN(std::vector<tenon::Literal> args,
                               tenon::Arguments(*hlo->module, {inputs, static_cast<size_t>(num_inputs)}));
        const tenon::KeepSubnormals keep;
        return tenon::Result(tenon::Evaluate(*hlo->module, args));
      },
      error);
}

int tenon_hlo_compile(TenonHlo* hlo, const TenonOption* options, int64_t num_options, char** error) {
  return tenon::Guarded([&] { return tenon::Compiled(*hlo, options, num_options).status(); }, error).ok() ? 0 : 1;
}

char* tenon_hlo_report(const TenonHlo* hlo, const TenonOption* options, int64_t num_options, char** error) {
  return tenon::GuardedText(
      [&]() -> absl::StatusOr<std::string> {
        std::vector<TenonOption> given(options, options + num_options);
        TENON_ASSIGN_OR_RETURN(const std::string target, tenon::TakeTarget(&given));
        TENON_ASSIGN_OR_RETURN(tenon::RequestOptions request,
                               tenon::ReadOptions(given.data(), static_cast<int64_t>(given.size())));
        if (request.compile.report == tenon::CompileOptions::Report::kNone) {
          request.compile.report = tenon::CompileOptions::Report::kCode;
        }
        std::unique_ptr<tenon::Module> module = hlo->module->Clone();
        if (target != "cpu") TENON_RETURN_IF_ERROR(tenon::ShowFor(target, *module, &request.compile));
        auto program = tenon::CompileToProgram(module->Clone(), tenon::BindingOf(*module), request.compile);
        return tenon::ReportDocument(
            module->name(), {program.ok() ? tenon::GraphReport(*program, "")
                                          : tenon::GraphReport(*module, std::string(program.status().message()))});
      },
      error);
}

TenonHloResult* tenon_hlo_run(TenonHlo* hlo, const TenonTensor* inputs, int64_t num_inputs, char** error) {
  return tenon::Released(
      [&]() -> absl::StatusOr<std::unique_ptr<TenonHloResult>> {
        const tenon::KeepSubnormals keep;
        TENON_ASSIGN_OR_RETURN(tenon::LiteralExecutable* executable, tenon::Compiled(*hlo, nullptr, 0));
        TENON_ASSIGN_OR_RETURN(std::vector<tenon::Literal> args,
                               tenon::Arguments(*hlo->module, {inputs, static_cast<size_t>(num_inputs)}));
        TENON_ASSIGN_OR_RETURN(std::vector<tenon::Literal> leaves, executable->Run(args));
        return tenon::NewResult(tenon::Literal::Tuple(std::move(leaves)));
      },
      error);
}

int64_t tenon_hlo_result_count(const TenonHloResult* result) { return static_cast<int64_t>(result->leaves.size()); }
const TenonTensor* tenon_hlo_result_leaves(const TenonHloResult* result) { return result->leaves.data(); }
void tenon_hlo_result_release(TenonHloResult* result) { delete result; }

int tenon_hlo_register_custom_call(const char* target, TenonHloCustomCall call, void* context, char** error) {
  const auto add = [&] {
    if (call == nullptr) {
      tenon::RegisterCustomCall(target, nullptr);
    } else {
      tenon::RegisterCustomCall(target, tenon::ForeignCall{call, context});
    }
    return absl::OkStatus();
  };
  return tenon::Guarded(add, error).ok() ? 0 : 1;
}

char* tenon_hlo_custom_calls(void) {
  return tenon::GuardedText([] { return tenon::Json(tenon::CustomCallTargets()).dump(); }, nullptr);
}

int tenon_hlo_set_lapack(const char* path, char** error) {
  const auto set = [&] {
    tenon::SetLapackLibrary(path);
    return absl::OkStatus();
  };
  return tenon::Guarded(set, error).ok() ? 0 : 1;
}

void tenon_hlo_set_interrupted(int (*ask)(void)) { tenon::interrupted = ask; }

}  // extern "C"
