// "tenon.rng_state", "tenon.swap_rng_state": the state of ATen's generator as a value, for draws that a backward repeats.
#include <ATen/CPUGeneratorImpl.h>

#include <mutex>
#include <string_view>

#include "torch_plugin/executor/op_impl.h"

namespace tenon::torch_host {
namespace {

// () -> state; (new state) -> old state.
class RandomStateOp final : public Op {
 public:
  void Call(TenonOpCall* call) override {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    std::lock_guard<std::mutex> lock(generator.mutex());
    at::Tensor state = generator.get_state();
    if (num_operands == 1) generator.set_state(Operand(*call, 0));
    Give(call, 0, std::move(state));
  }
};

}  // namespace

std::unique_ptr<Op> PrepareRandomStateOp(const TenonOpSpec& spec) {
  const std::string_view name = spec.overload;
  const int32_t wanted = name == "tenon.rng_state" ? 0 : name == "tenon.swap_rng_state" ? 1 : -1;
  TORCH_CHECK(wanted >= 0, "no operator of tenon's own: ", spec.overload);
  TORCH_CHECK(spec.num_operands == wanted && spec.num_results == 1, spec.overload, ": wanted ", wanted, " operands and 1 result, got ",
              spec.num_operands, " and ", spec.num_results);
  return std::make_unique<RandomStateOp>();
}

}  // namespace tenon::torch_host
