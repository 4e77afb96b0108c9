// The toy: a target with a memory of its own and grid launches, which interprets its plans. A compile whose set of targets holds it
// computes on it what lies in its space, and by the host's target the rest. It knows of the compiler what any target must:
// backends/contract/target.h, what the runtime has for devices (runtime/execute/device.h, code_loader.h) and TenonHost.
#pragma once

#include <memory>

#include "backends/contract/target.h"
#include "runtime/tenon_c.h"
#include "tests/toy_target/toy_memory.h"

namespace tenon::toy {

inline constexpr int32_t kSpace = 1;

// `name`, `space`: of another toy, which shares the memory.
std::shared_ptr<const Target> MakeToy(std::string name = "toy", int32_t space = kSpace);

// PlainHost, and the toy's memory as space 1. `stream`: what TenonHost::stream says from now on.
const TenonHost* ToyHost();
void SetStream(void* stream);
int64_t LiveEvents();

// The next launch or copy but n fails when it is its turn; -1: none.
void FailWork(int64_t n);

}  // namespace tenon::toy
