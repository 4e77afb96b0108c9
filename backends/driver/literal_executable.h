// LiteralExecutable: a module compiled for the CPU that runs on literals, without a framework. Dots run as plain loops
// (runtime/host/plain_host.h); what else needs a framework operator is refused by name when compiling. Sizes that are known at run time
// only (run_time_sizes.h) are computed by a program of their own; the module is then compiled for them, once per set of sizes. A
// module with symbols is one program for all their sizes: arguments bring them, and a call that breaks one of the program's guards is
// FailedPrecondition.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/driver/compile.h"
#include "hlo/literal.h"
#include "hlo/module.h"
#include "runtime/execute/executable.h"

namespace tenon {

class LiteralExecutable {
 public:
  // `host`: null for PlainHost(). `max_grain`: if positive, no kernel's grain is larger, so that small arrays are split over threads too.
  static absl::StatusOr<std::unique_ptr<LiteralExecutable>> Compile(const Module& module, const CompileOptions& options,
                                                                    const TenonHost* host = nullptr, int64_t max_grain = 0);
  // `args` by parameter number; returns the leaves of the root. Thread-safe. `run_us`: time of the run alone.
  absl::StatusOr<std::vector<Literal>> Run(absl::Span<const Literal> args, double* run_us = nullptr) const;
  // Null where sizes that are known at run time decide which one runs.
  const std::shared_ptr<Executable>& executable() const { return executable_; }
  double compile_ms() const { return compile_ms_; }

  // Arguments and results laid out once, for any number of runs: what a benchmark times. One run at a time; the executable must
  // outlive it.
  class Session {
   public:
    ~Session();
    absl::Status Run(double* run_us = nullptr);
    Executable& executable() const;
    std::vector<Literal> Results() const;

   private:
    friend class LiteralExecutable;
    struct Impl;
    explicit Session(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
  };
  absl::StatusOr<std::unique_ptr<Session>> Prepare(absl::Span<const Literal> args) const;

 private:
  struct BySize;  // what sizes known at run time need

  std::shared_ptr<BySize> by_size_;  // null: all sizes are static
  std::vector<Shape> parameters_, leaves_;
  std::shared_ptr<Executable> executable_;
  double compile_ms_ = 0;
};

}  // namespace tenon
