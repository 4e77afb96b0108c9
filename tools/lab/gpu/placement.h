// Which target computes the instructions of a module that is compiled for a host and a device.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "hlo/module.h"

namespace tenon::gpu {

struct Placement {
  int64_t device = 0, host = 0;  // instructions that compute
  std::map<std::string, int64_t> host_opcodes;

  Placement& operator+=(const Placement& other);
  std::string ToJson() const;  // {"device": n, "host": n, "host_opcodes": {"sort": n}}
};

// Of a module behind the last pass, whose shapes say where values lie (assign-spaces). Instructions that compute: all that stand in
// kernels, and outside of them calls of libraries and operators; not parameters, constants, tuples and their elements, views, loops,
// branches and copies between memories.
Placement PlacementOf(const Module& module);

}  // namespace tenon::gpu
