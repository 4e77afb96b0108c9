// Runs modules whose parameters and results may lie in the toy's memory: literals go in and out by explicit copies.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/driver/compile.h"
#include "hlo/literal.h"
#include "hlo/module.h"
#include "passes/spaces/spaces.h"
#include "runtime/execute/executable.h"
#include "tests/toy_target/toy.h"

namespace tenon::toy {


// With MakeToy() among the targets.
absl::StatusOr<Program> CompileForToy(const Module& module, CompileOptions options = {});

class ToyRunner {
 public:
  static absl::StatusOr<ToyRunner> Make(Program program, const TenonHost* host = ToyHost());
  // Leaves of the parameters in; leaves of the result out, all in the strides that the program asks for. What nobody stores is poison.
  // `after`, if given: the arguments as the run leaves them, whatever came of it.
  absl::StatusOr<std::vector<Literal>> Run(const std::vector<Literal>& leaves, std::vector<Literal>* after = nullptr) const;
  const Program& program() const { return executable_->program(); }

 private:
  std::shared_ptr<Executable> executable_;
};

int64_t LaunchesOf(const Program& program);  // steps
int64_t TransfersOf(const Program& program);  // copies between the toy's memory and the host's

}  // namespace tenon::toy
