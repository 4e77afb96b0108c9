#include "torch_plugin/executor/lost_operators.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>
#include <memory>

namespace tenon::torch_host {
namespace {

// Called under the dispatcher's lock.
class Listener final : public c10::OpRegistrationListener {
 public:
  explicit Listener(std::atomic<int64_t>* lost) : lost_(lost) {}
  void onOperatorRegistered(const c10::OperatorHandle&) override {}
  void onOperatorDeregistered(const c10::OperatorHandle&) override { lost_->fetch_add(1, std::memory_order_relaxed); }

 private:
  std::atomic<int64_t>* const lost_;
};

}  // namespace

int64_t LostOperators() {
  static std::atomic<int64_t> lost{0};
  // Never taken back: the dispatcher may be gone before this library is.
  static const auto* const listening =
      new c10::RegistrationHandleRAII(c10::Dispatcher::singleton().addRegistrationListener(std::make_unique<Listener>(&lost)));
  static_cast<void>(listening);
  return lost.load(std::memory_order_relaxed);
}

}  // namespace tenon::torch_host
