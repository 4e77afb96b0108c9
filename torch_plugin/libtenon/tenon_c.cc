// The C seam: every entry point catches everything.
#include "absl/strings/str_cat.h"
#include "backends/driver/compile.h"
#include "backends/report/document.h"
#include "hlo/json.h"
#include "runtime/cache/memory_cache.h"
#include "runtime/float_mode.h"
#include "runtime/fork.h"
#include "torch_plugin/libtenon/build_id.h"
#include "torch_plugin/libtenon/graph_handle.h"
#include "torch_plugin/libtenon/guarded.h"
#include "torch_plugin/libtenon/handle.h"
#include "torch_plugin/libtenon/options.h"
#include "torch_plugin/libtenon/request.h"

namespace tenon {
namespace {

absl::Status CheckHost(const TenonHost* host) {
  if (host == nullptr || host->version != TENON_ABI_VERSION || host->size < sizeof(TenonHost)) {
    return absl::FailedPreconditionError(
        absl::StrCat("the host speaks version ", host == nullptr ? 0 : host->version,
                     " of tenon_c.h, this library ", TENON_ABI_VERSION, ": rebuild the extension"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<TenonExecutable>> Compile(const TenonGraph* graph, const TenonOption* given, int64_t num_options,
                                                         std::vector<TenonTensor> constants, const TenonHost* host) {
  TENON_RETURN_IF_ERROR(CheckHost(host));
  const KeepSubnormals keep;
  if (graph == nullptr || !graph->builder.finished()) {
    return absl::InvalidArgumentError(graph == nullptr ? "wanted a graph, got NULL" : "wanted a graph with its return");
  }
  InstallForkHandlers();
  TENON_ASSIGN_OR_RETURN(RequestOptions options, ReadOptions(given, num_options));
  options.compile.host_functions = host->functions;
  options.compile.interrupted = [host] { return host->interrupted(host->context) != 0; };
  TENON_ASSIGN_OR_RETURN(CompiledGraph compiled, CompileRequest(graph->builder.graph(), options, constants, host));
  auto handle = std::make_unique<TenonExecutable>(std::move(compiled));
  handle->counters->name = options.name;
  if (handle->once != nullptr) handle->once->counters->name = options.name + "_once";
  return handle;
}

// Texts without an error of their own: {"error": ...} is better than nothing.
template <typename F>
char* Text(const F& make) noexcept {
  char* error = nullptr;
  char* text = GuardedText(make, &error, /*with_code=*/false);
  if (text != nullptr) return text;
  text = GuardedText([&] { return absl::StrCat("{\"error\":", Json(error == nullptr ? "out of memory" : error).dump(), "}"); }, nullptr);
  std::free(error);
  return text != nullptr ? text : strdup("{\"error\":\"out of memory\"}");
}

absl::Status OutputSizes(const TenonExecutable& e, const TenonTensor* inputs, int64_t output, int64_t* sizes,
                         int64_t* strides) {
  std::vector<int64_t> s, t;
  TENON_RETURN_IF_ERROR(e.executable->OutputSizes(inputs, output, &s, &t));
  std::copy(s.begin(), s.end(), sizes);
  std::copy(t.begin(), t.end(), strides);
  return absl::OkStatus();
}

// Made when the library is loaded, so that the functions that look at them cannot fail.
const std::vector<std::string> dtype_names = [] {
  std::vector<std::string> all;
  for (int k = 0; k <= static_cast<int>(PrimitiveType::kBuffer); ++k) {
    all.emplace_back(PrimitiveTypeName(static_cast<PrimitiveType>(k)));
  }
  (void)ParsePrimitiveType("");  // makes its table
  return all;
}();
// Asked of the loader, whose lock another thread may hold at a fork: a child finds them known.
const std::string build_id = [] {
  (void)CompilerBuildId();
  return BuildId();
}();

}  // namespace
}  // namespace tenon

extern "C" {

TenonExecutable* tenon_compile(const TenonGraph* graph, const TenonOption* options, int64_t num_options, const TenonTensor* constants,
                               int64_t num_constants, const TenonHost* host, char** error) {
  return tenon::Released(
      [&] { return tenon::Compile(graph, options, num_options, {constants, constants + num_constants}, host); }, error,
      /*with_code=*/false);
}

void tenon_executable_retain(TenonExecutable* e) {
  e->references.fetch_add(1, std::memory_order_relaxed);
}
void tenon_executable_release(TenonExecutable* e) {
  if (e != nullptr && e->references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete e;
}

char* tenon_executable_info(const TenonExecutable* e) {
  return tenon::Text([&] { return e->executable->InfoJson(); });
}
char* tenon_executable_text(const TenonExecutable* e) {
  return tenon::Text([&] { return e->executable->program().ToString(); });
}
char* tenon_executable_stats(const TenonExecutable* e, int reset) {
  return tenon::Text([&] { return e->executable->StatsJson(reset != 0, e->counters.get()); });
}
char* tenon_executable_report(const TenonExecutable* e) {
  return tenon::Text([&] {
    return tenon::GraphReport(e->executable->program(), e->executable->ProfileJson(e->counters.get()));
  });
}
char* tenon_report_html(const char* document, size_t size, char** error) {
  return tenon::GuardedText([&] { return tenon::ReportHtml({document, size}); }, error, /*with_code=*/false);
}
void tenon_set_profiling(int on) { tenon::Executable::SetProfiling(on != 0); }

const TenonSignature* tenon_signature(const TenonExecutable* e) { return &e->signature; }
TenonExecutable* tenon_executable_once(const TenonExecutable* e) { return e->once.get(); }

int tenon_run_owned(TenonExecutable* e, const TenonTensor* inputs, uint8_t* owned,
                    TenonTensor* outputs, char** error) {
  try {
    if (e->signature.native != 0 && tenon::FlushesSubnormals()) {
      if (error != nullptr) *error = strdup(tenon::kFlushesSubnormals);
      return TENON_ERROR;
    }
    const tenon::RunResult result = e->executable->Run(inputs, outputs, owned, e->counters.get());
    const bool hosts = (result.code & ~TENON_AFTER_WRITES) == TENON_HOST_ERROR;  // the host keeps its own
    const bool tells = result.code != TENON_OK && !hosts && error != nullptr;
    if (tells) *error = strdup(result.error.empty() ? "out of memory" : result.error.c_str());
    return result.code;
  } catch (...) {  // not even the memory for a message
    if (error != nullptr) *error = strdup("out of memory");
    return TENON_ERROR;
  }
}
int tenon_run(TenonExecutable* e, const TenonTensor* inputs, TenonTensor* outputs, char** error) {
  return tenon_run_owned(e, inputs, nullptr, outputs, error);
}

int tenon_check_inputs(TenonExecutable* e, const TenonTensor* inputs, char** error) {
  return tenon::Guarded([&] { return e->executable->Check(inputs); }, error, /*with_code=*/false).ok() ? TENON_OK : TENON_ERROR;
}
int tenon_output_sizes(TenonExecutable* e, const TenonTensor* inputs, int64_t output,
                       int64_t* sizes, int64_t* strides, char** error) {
  const auto ask = [&] { return tenon::OutputSizes(*e, inputs, output, sizes, strides); };
  return tenon::Guarded(ask, error, /*with_code=*/false).ok() ? TENON_OK : TENON_ERROR;
}

void tenon_string_free(char* text) { std::free(text); }
int32_t tenon_dtype_from_name(const char* name) {
  const auto type = tenon::ParsePrimitiveType(name);
  return type ? static_cast<int32_t>(*type) : -1;
}
const char* tenon_dtype_name(int32_t dtype) {
  return dtype >= 0 && dtype < static_cast<int32_t>(tenon::dtype_names.size()) ? tenon::dtype_names[dtype].c_str() : "unknown";
}
const char* tenon_build_id(void) { return tenon::build_id.c_str(); }

char* tenon_cache_stats(void) {
  return tenon::Text([] {
    tenon::MemoryCache& cache = tenon::MemoryCache::Global();
    const tenon::MemoryCache::Counters c = cache.counters();
    return tenon::Json({{"entries", c.entries},
                                   {"capacity", cache.capacity()},
                                   {"bytes", c.bytes},
                                   {"max_bytes", cache.max_bytes()},
                                   {"hits", c.hits},
                                   {"misses", c.misses},
                                   {"waits", c.waits},
                                   {"compiles", c.compiles},
                                   {"failures", c.failures},
                                   {"evictions", c.evictions},
                                   {"last_miss", cache.last_miss()}})
        .dump();
  });
}
void tenon_cache_clear(void) { tenon::MemoryCache::Global().Clear(); }

}  // extern "C"
