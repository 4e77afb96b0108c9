#include "runtime/clock.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace tenon {
namespace {

struct Origin {
  uint64_t ticks = Ticks();
  std::chrono::steady_clock::time_point time = std::chrono::steady_clock::now();
};
const Origin origin;

double NsPerTick() {
  using namespace std::chrono;
  nanoseconds passed = steady_clock::now() - origin.time;
  if (passed < milliseconds(2)) {  // too short a base for a ratio
    std::this_thread::sleep_for(milliseconds(2) - passed);
    passed = steady_clock::now() - origin.time;
  }
  const uint64_t ticks = std::max<uint64_t>(Ticks() - origin.ticks, 1);
  return static_cast<double>(passed.count()) / static_cast<double>(ticks);
}

}  // namespace

double TicksToNs(uint64_t ticks) { return static_cast<double>(ticks) * NsPerTick(); }
uint64_t NsToTicks(double ns) { return static_cast<uint64_t>(ns / NsPerTick()); }

}  // namespace tenon
