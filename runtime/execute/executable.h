// Executable: a loaded Program that runs. Immutable after creation, shared by any number of
// threads.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/execute/code_loader.h"
#include "runtime/host/host.h"
#include "runtime/program/program.h"

namespace tenon {

class RunCounters;

struct RunResult {
  int code = TENON_OK;  // TENON_*
  std::string error;
  absl::StatusCode kind = absl::StatusCode::kInternal;  // of a TENON_ERROR
};

class Executable {
 public:
  // Validates, loads the code, prepares framework operators, resolves constants. `host` must
  // outlive the executable. `framework_constants`: memory behind ConstantSpec::kFramework.
  static absl::StatusOr<std::shared_ptr<Executable>> Create(
      Program program, const CodeLoaders& loaders, const TenonHost* host,
      std::vector<TenonTensor> framework_constants = {});
  ~Executable();

  const Program& program() const;
  bool takes_framework_input(int64_t input) const;  // the host gets the caller's own tensor
  int64_t planned_bytes() const;                    // arena, outputs, constants, as far as they are known
  // See tenon_run and tenon_run_owned. Takes a Frame from the pool (at most as many as ran at once
  // are kept; trimmed when idle). `counters`: whose account the run goes to; NULL: the executable's
  // own. Several users of one cached executable each have theirs.
  RunResult Run(const TenonTensor* inputs, TenonTensor* outputs, uint8_t* owned = nullptr,
                RunCounters* counters = nullptr);
  // What Run checks of its inputs' metas before it reads anything.
  absl::Status Check(const TenonTensor* inputs) const;
  // Sizes and strides of fresh output k for these inputs (symbolic programs).
  absl::Status OutputSizes(const TenonTensor* inputs, int64_t k, std::vector<int64_t>* sizes,
                           std::vector<int64_t>* strides) const;

  std::shared_ptr<RunCounters> NewCounters() const;
  std::string StatsJson(bool reset, RunCounters* counters = nullptr);
  std::string ProfileJson(RunCounters* counters = nullptr) const;  // see RunCounters::ProfileJson
  std::string InfoJson() const;
  int64_t idle_frames() const;
  static void SetProfiling(bool on);

 private:
  struct Impl;
  absl::Status Dims(const TenonTensor* inputs, std::vector<int64_t>* dims) const;
  explicit Executable(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tenon
