// Pace: how often something is asked that is dear to ask.
#pragma once

#include "runtime/clock.h"

namespace tenon {

// True at most twenty times a second, the first time a twentieth of a second after the start. A few ns a call.
class Pace {
 public:
  bool Due() {
    const uint64_t now = Ticks();
    if (now < next_) return false;
    next_ = now + NsToTicks(kNs);
    return true;
  }

 private:
  static constexpr double kNs = 50e6;
  uint64_t next_ = Ticks() + NsToTicks(kNs);
};

}  // namespace tenon
