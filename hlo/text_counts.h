// How often texts of programs were printed and parsed in this process: a compile does neither, and a test sees to it that this stays so
// (tests/plugin/test_seam.py).
#pragma once

#include <atomic>
#include <cstdint>

namespace tenon {

struct TextCounts {
  std::atomic<int64_t> graphs_printed{0}, graphs_parsed{0};    // aten::Graph
  std::atomic<int64_t> modules_printed{0}, modules_parsed{0};  // whole modules and computations of HLO
  std::atomic<int64_t> json_parsed{0};
};
inline TextCounts text_counts;

inline void Count(std::atomic<int64_t>& texts) { texts.fetch_add(1, std::memory_order_relaxed); }

}  // namespace tenon
