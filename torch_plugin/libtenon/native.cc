#include "torch_plugin/libtenon/native.h"

#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/contract/digest.h"
#include "backends/driver/freeze.h"
#include "hlo/canonical_bytes.h"
#include "hlo/check.h"
#include "hlo/text/text.h"
#include "runtime/cache/memory_cache.h"
#include "torch_plugin/aten/graph_bytes.h"
#include "torch_plugin/libtenon/build_id.h"

namespace tenon {
namespace {

// Everything of the binding that changes the program; names are for messages only.
void AppendBinding(const Binding& binding, ByteStream* out) {
  out->Number(binding.parameters.size());
  for (const Binding::Parameter& p : binding.parameters) {
    out->Enum(p.kind);
    out->Number(p.index);
    out->Enum(p.dtype);
    out->AddDims(p.sizes);
    out->AddDims(p.strides);
    out->Bool(p.flat_storage);
  }
  out->Number(binding.inputs.size());
  for (const Binding::Input& in : binding.inputs) {
    out->Enum(in.kind);
    out->Enum(in.dtype);
    out->AddDims(in.sizes);
    out->AddDims(in.strides);
    out->Add(in.symint);
    out->Bool(in.mutated);
    out->Number(in.space);
    out->Text(in.packed_by);
    out->Number(in.packing.size());
    for (int64_t number : in.packing) out->Number(number);
  }
  out->Number(binding.outputs.size());
  for (const Binding::Output& o : binding.outputs) {
    out->Enum(o.kind);
    out->Number(o.index);
    out->Number(o.root_index);
    out->Enum(o.dtype);
    out->AddDims(o.sizes);
    out->AddDims(o.strides);
    out->Add(o.symint);
    out->Number(o.space);
  }
  out->Number(binding.mutations.size());
  for (const Binding::Mutation& m : binding.mutations) {
    out->Number(m.input);
    out->Number(m.root_index);
  }
  out->Number(binding.checks.size());
  for (const CheckSpec& check : binding.checks) {
    out->Text(check.exception);
    out->Text(check.message);
  }
}

// Who compiles, for what, and who runs it.
CacheKey KeyOf(const NativeCompile& request) {
  CacheKey key;
  key.Add("build", absl::StrCat(BuildId(), " ", CompilerBuildId()));
  key.Add("target", TargetKey(request.options.compile));
  key.Add("options", request.options.compile.Key());
  key.Add("lost operators", absl::StrCat(request.options.lost_operators));
  key.Add("host", absl::StrCat(absl::Hex(reinterpret_cast<uintptr_t>(request.host))));
  return key;
}

// The *graph* key: before anything is lowered.
CacheKey GraphKey(const NativeCompile& request) {
  CacheKey key = KeyOf(request);
  ByteStream lowering;
  lowering.Bool(request.options.lower.excess_precision);
  lowering.Bool(request.options.lower.fill_empty);
  lowering.Enum(request.options.lower.default_dtype);
  lowering.Number(request.options.lower.disable.size());
  for (const std::string& op : request.options.lower.disable) lowering.Text(op);
  lowering.AddNumbers(request.options.frozen);
  key.Add("lowering", Digest(lowering.bytes()));
  ByteStream graph(Digest);
  AppendGraph(request.graph, &graph);
  key.Add("graph", Digest(graph.bytes()));
  return key;
}

// The *module* key: of what came of the graph, and may come of others.
CacheKey ModuleKey(const Module& module, const Binding& binding, const NativeCompile& request) {
  CacheKey key = KeyOf(request);
  ByteStream bytes(Digest);
  AppendBinding(binding, &bytes);
  key.Add("binding", Digest(bytes.bytes()));
  ByteStream of_module(Digest);
  AppendModule(module, &of_module);
  key.Add("module", Digest(of_module.bytes()));
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
  MemoryCache& cache = MemoryCache::Global();
  std::optional<CacheKey> graph_key;
  if (shared()) {
    graph_key = GraphKey(*this);
    const std::vector<std::shared_ptr<Executable>> known = cache.FindAlias(*graph_key);
    if (!known.empty()) return CompiledGraph{.executable = known[0], .once = known.size() > 1 ? known[1] : nullptr};
  }
  TENON_ASSIGN_OR_RETURN(aten::Lowered lowered, aten::Lower(graph, options.lower));
  CompiledGraph compiled;
  std::vector<CacheKey> keys(1);
  if (!options.frozen.empty()) {
    if (std::optional<Frozen> frozen = Freeze(*lowered.module, lowered.binding, options.frozen, options.compile)) {
      aten::Lowered once{.module = std::move(frozen->once), .binding = std::move(frozen->once_binding), .remarks = {}};
      TENON_ASSIGN_OR_RETURN(compiled.once, CompileOne(std::move(once), absl::StrCat(graph.name, "_once"), 0, &keys.emplace_back()));
    }
  }
  const std::chrono::duration<double, std::milli> lower_ms = std::chrono::steady_clock::now() - begin;
  TENON_ASSIGN_OR_RETURN(compiled.executable, CompileOne(std::move(lowered), graph.name, lower_ms.count(), &keys[0]));
  if (graph_key) cache.AddAlias(*graph_key, keys);
  return compiled;
}

// An executable borrows its framework constants' memory, so only its own graph may use it.
bool NativeCompile::shared() const { return constants.empty() && options.cache; }

absl::StatusOr<std::shared_ptr<Executable>> NativeCompile::CompileOne(aten::Lowered lowered, const std::string& name, double lower_ms,
                                                                      CacheKey* key) const {
  const auto compile = [&]() -> absl::StatusOr<std::shared_ptr<Executable>> {
    TENON_ASSIGN_OR_RETURN(Program program,
                           CompileToProgram(std::move(lowered.module), std::move(lowered.binding),
                                            options.compile));
    program.name = name;
    program.compile_ms.emplace_back("lower", lower_ms);
    program.remarks.insert(program.remarks.begin(), lowered.remarks.begin(), lowered.remarks.end());
    return Executable::Create(std::move(program), LoadersOf(options.compile), host, constants);
  };
  if (!shared()) return compile();
  *key = ModuleKey(*lowered.module, lowered.binding, *this);
  return MemoryCache::Global().GetOrCompile(*key, compile);
}

}  // namespace tenon
