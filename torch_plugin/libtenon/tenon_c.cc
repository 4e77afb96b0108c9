// The C seam: every entry point catches everything.
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "backends/report/document.h"
#include "runtime/cache/memory_cache.h"
#include "runtime/fork.h"
#include "torch_plugin/libtenon/build_id.h"
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

absl::StatusOr<TenonExecutable*> Compile(std::string_view graph, std::string_view options_json,
                                         std::vector<TenonTensor> constants,
                                         const TenonHost* host) {
  TENON_RETURN_IF_ERROR(CheckHost(host));
  InstallForkHandlers();
  TENON_ASSIGN_OR_RETURN(const RequestOptions options, ParseRequestOptions(options_json));
  TENON_ASSIGN_OR_RETURN(std::shared_ptr<Executable> executable,
                         CompileRequest(graph, options, constants, host));
  return new TenonExecutable(std::move(executable));
}

template <typename F>
char* Text(const F& make) {
  try {
    return NewString(make());
  } catch (const std::exception& e) {
    return NewString(absl::StrCat("{\"error\":", nlohmann::json(e.what()).dump(), "}"));
  }
}

}  // namespace
}  // namespace tenon

extern "C" {

TenonExecutable* tenon_compile(const char* graph, size_t graph_size, const char* options,
                               size_t options_size, const TenonTensor* constants,
                               int64_t num_constants, const TenonHost* host, char** error) {
  std::string message;
  try {
    auto made = tenon::Compile({graph, graph_size}, {options, options_size},
                               {constants, constants + num_constants}, host);
    if (made.ok()) return *made;
    message = std::string(made.status().message());
  } catch (const std::bad_alloc&) {
    message = "out of memory while compiling";
  } catch (const std::exception& e) {
    message = e.what();
  }
  if (error != nullptr) *error = tenon::NewString(message);
  return nullptr;
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
  std::string message;
  try {
    auto html = tenon::ReportHtml({document, size});
    if (html.ok()) return tenon::NewString(*html);
    message = std::string(html.status().message());
  } catch (const std::exception& e) {
    message = e.what();
  }
  if (error != nullptr) *error = tenon::NewString(message);
  return nullptr;
}
void tenon_set_profiling(int on) { tenon::Executable::SetProfiling(on != 0); }

int64_t tenon_num_inputs(const TenonExecutable* e) {
  return static_cast<int64_t>(e->executable->program().inputs.size());
}
int64_t tenon_num_outputs(const TenonExecutable* e) {
  return static_cast<int64_t>(e->outputs.size());
}
const TenonOutput* tenon_outputs(const TenonExecutable* e) { return e->outputs.data(); }

int tenon_run_owned(TenonExecutable* e, const TenonTensor* inputs, uint8_t* owned,
                    TenonTensor* outputs, char** error) {
  const tenon::RunResult result = e->executable->Run(inputs, outputs, owned, e->counters.get());
  if (result.code != TENON_OK && !result.error.empty() && error != nullptr)
    *error = tenon::NewString(result.error);
  return result.code;
}
int tenon_run(TenonExecutable* e, const TenonTensor* inputs, TenonTensor* outputs, char** error) {
  return tenon_run_owned(e, inputs, nullptr, outputs, error);
}

int tenon_output_sizes(TenonExecutable* e, const TenonTensor* inputs, int64_t output,
                       int64_t* sizes, int64_t* strides, char** error) {
  std::vector<int64_t> s, t;
  const absl::Status status = e->executable->OutputSizes(inputs, output, &s, &t);
  if (!status.ok()) {
    if (error != nullptr) *error = tenon::NewString(std::string(status.message()));
    return TENON_ERROR;
  }
  std::copy(s.begin(), s.end(), sizes);
  std::copy(t.begin(), t.end(), strides);
  return TENON_OK;
}

void tenon_string_free(char* text) { std::free(text); }
int32_t tenon_dtype_from_name(const char* name) {
  const auto type = tenon::ParsePrimitiveType(name);
  return type ? static_cast<int32_t>(*type) : -1;
}
const char* tenon_dtype_name(int32_t dtype) {
  static const std::vector<std::string>* names = [] {
    auto* all = new std::vector<std::string>;
    for (int k = 0; k <= static_cast<int>(tenon::PrimitiveType::kBuffer); ++k) {
      all->emplace_back(tenon::PrimitiveTypeName(static_cast<tenon::PrimitiveType>(k)));
    }
    return all;
  }();
  return dtype >= 0 && dtype < static_cast<int32_t>(names->size()) ? (*names)[dtype].c_str()
                                                                   : "unknown";
}
const char* tenon_build_id(void) {
  static const std::string* id = new std::string(tenon::BuildId());
  return id->c_str();
}

char* tenon_cache_stats(void) {
  return tenon::Text([] {
    tenon::MemoryCache& cache = tenon::MemoryCache::Global();
    const tenon::MemoryCache::Counters c = cache.counters();
    return nlohmann::ordered_json({{"entries", c.entries},
                                   {"capacity", cache.capacity()},
                                   {"bytes", c.bytes},
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
