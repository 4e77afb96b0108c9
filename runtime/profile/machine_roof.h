// MachineRoof: what the machine could do at best, measured with loops that do nothing else. A roofline (Williams, Waterman, Patterson,
// "Roofline", CACM 2009) with a roof for each level of memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/tenon_c.h"

namespace tenon {

// All threads together.
struct MachineRoof {
  struct Level {
    std::string name;    // "L2", "L3", "memory"
    int64_t bytes;       // what it holds
    double gb_per_s;     // read
  };
  int threads = 1;
  double f32_gflop_per_s = 0;  // fused multiply-adds of vectors, two each; of f64 half as many fit
  std::vector<Level> levels;   // from the smallest; the last holds everything

  // The least time in which `flops` can be computed and `bytes` read or written, ns: by the smallest level that holds them, so that it is a
  // bound wherever the bytes lie.
  double LeastNs(int64_t bytes, int64_t flops, bool f64 = false) const;
  const Level& LevelOf(int64_t bytes) const;
};

// Measured at the first call for each number of threads that the host has, up to 0.3 s. Thread-safe; the result lives as long as the
// process. Loops run on the host's pool.
const MachineRoof& RoofOf(const TenonHost& host);

// Of all third caches together, as far as Linux tells; 0: unknown. sysconf's number may be of one, or of a machine whose part we are.
int64_t SharedCacheBytes();

}  // namespace tenon
