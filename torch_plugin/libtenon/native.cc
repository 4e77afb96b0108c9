#include "torch_plugin/libtenon/native.h"

#include <atomic>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "backends/driver/digest.h"
#include "backends/driver/freeze.h"
#include "hlo/check.h"
#include "hlo/text/text.h"
#include "runtime/cache/memory_cache.h"
#include "torch_plugin/libtenon/build_id.h"

namespace tenon {
namespace {

// Constants up to this size stand in the module's text; larger ones by their digest.
constexpr int64_t kElementsInText = 64;

std::string Join(const std::vector<Dim>& dims) {
  return absl::StrJoin(dims, ",",
                       [](std::string* out, Dim d) { absl::StrAppend(out, d.ToString()); });
}

std::string ConstantDigests(const Module& module) {
  std::string digests;
  for (const Computation* computation : module.computations()) {
    for (const Instruction* op : computation->PostOrder()) {
      if (op->opcode() != Opcode::kConstant || op->literal().shape().is_tuple()) continue;
      if (op->literal().num_elements() <= kElementsInText) continue;
      const Literal& l = op->literal();
      absl::StrAppend(&digests, Digest({reinterpret_cast<const char*>(l.bytes()), static_cast<size_t>(l.size_bytes())}), ",");
    }
  }
  return digests;
}

// Everything of the binding that changes the program; names are for messages only.
std::string BindingText(const Binding& binding) {
  std::string text;
  for (const Binding::Parameter& p : binding.parameters) {
    absl::StrAppend(&text, "p", static_cast<int>(p.kind), ":", p.index, ":", static_cast<int>(p.dtype),
                    "[", Join(p.sizes), "]{", Join(p.strides), "}", p.flat_storage, ";");
  }
  for (const Binding::Input& in : binding.inputs) {
    absl::StrAppend(&text, "i", static_cast<int>(in.kind), ":", static_cast<int>(in.dtype), "[",
                    Join(in.sizes), "]{", Join(in.strides), "}", in.symint.ToString(), in.mutated, "@", in.space, ";");
  }
  for (const Binding::Output& out : binding.outputs) {
    absl::StrAppend(&text, "o", static_cast<int>(out.kind), ":", out.index, ":", out.root_index, ":",
                    static_cast<int>(out.dtype), "[", Join(out.sizes), "]{", Join(out.strides), "}",
                    out.symint.ToString(), "@", out.space, ";");
  }
  for (const Binding::Mutation& m : binding.mutations) {
    absl::StrAppend(&text, "m", m.input, ":", m.root_index, ";");
  }
  for (const CheckSpec& check : binding.checks) {
    absl::StrAppend(&text, "c", check.exception.size(), ":", check.exception, check.message.size(), ":",
                    check.message, ";");
  }
  return text;
}

CacheKey KeyOf(const Module& module, const Binding& binding, const NativeCompile& request) {
  CacheKey key;
  key.Add("build", absl::StrCat(BuildId(), " ", CompilerBuildId()));
  key.Add("target", TargetKey(request.options.compile));
  key.Add("options", request.options.compile.Key());
  key.Add("binding", Digest(BindingText(binding)));
  key.Add("constants", Digest(ConstantDigests(module)));
  key.Add("module", Digest(Print(module, {.canonical = true, .max_constant_elements = kElementsInText})));
  // An executable borrows its framework constants' memory and calls its host, so only its own graph may use it.
  if (!request.constants.empty() || !request.options.cache) {
    static std::atomic<int64_t> unique{0};
    key.Add("graph", absl::StrCat(unique.fetch_add(1)));
  }
  key.Add("host", absl::StrCat(absl::Hex(reinterpret_cast<uintptr_t>(request.host))));
  return key;
}

}  // namespace

std::string NativeCompile::Hlo() const {
  try {
    const absl::StatusOr<aten::Lowered> lowered = aten::Lower(graph, options.lower);
    return lowered.ok() ? Print(*lowered->module) : "";
  } catch (const std::exception&) {  // then that is what the repro is of, and the graph's text shows it
    return "";
  }
}

absl::StatusOr<CompiledGraph> NativeCompile::Run() {
  const auto begin = std::chrono::steady_clock::now();
  TENON_ASSIGN_OR_RETURN(aten::Lowered lowered, aten::Lower(graph, options.lower));
  CompiledGraph compiled;
  if (!options.frozen.empty()) {
    if (std::optional<Frozen> frozen = Freeze(*lowered.module, lowered.binding, options.frozen, options.compile)) {
      aten::Lowered once{.module = std::move(frozen->once), .binding = std::move(frozen->once_binding), .remarks = {}};
      TENON_ASSIGN_OR_RETURN(compiled.once, CompileOne(std::move(once), absl::StrCat(graph.name, "_once"), 0));
    }
  }
  const std::chrono::duration<double, std::milli> lower_ms = std::chrono::steady_clock::now() - begin;
  TENON_ASSIGN_OR_RETURN(compiled.executable, CompileOne(std::move(lowered), graph.name, lower_ms.count()));
  return compiled;
}

absl::StatusOr<std::shared_ptr<Executable>> NativeCompile::CompileOne(aten::Lowered lowered, const std::string& name,
                                                                      double lower_ms) const {
  const CacheKey key = KeyOf(*lowered.module, lowered.binding, *this);
  const bool shared = constants.empty() && options.cache;
  const auto compile = [&]() -> absl::StatusOr<std::shared_ptr<Executable>> {
    TENON_ASSIGN_OR_RETURN(Program program,
                           CompileToProgram(std::move(lowered.module), std::move(lowered.binding),
                                            options.compile));
    program.name = name;
    program.compile_ms.emplace_back("lower", lower_ms);
    program.remarks.insert(program.remarks.begin(), lowered.remarks.begin(), lowered.remarks.end());
    return Executable::Create(std::move(program), LoadersOf(options.compile), host, constants);
  };
  return shared ? MemoryCache::Global().GetOrCompile(key, compile) : compile();
}

}  // namespace tenon
