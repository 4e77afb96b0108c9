// MachineModel: what a machine's time goes to, for whoever decides by time: plans, grains, estimates, the choice of a provider. Plain data,
// from a table by processor (backends/cpu/plan/machine.h) or from a file that tenon-tune wrote.
//
// What these numbers decide is when work is worth a thread, and by matmul_share who computes a product. They never decide in which order a
// kernel adds: that follows from sizes and instruction set alone, so that results have the same bits wherever they are made.
#pragma once

#include <array>
#include <limits>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tenon {

// A level of memory, as generated code sees it: a loop that reads two arrays and writes a third.
struct MemoryLevel {
  double bytes;             // what it holds: L1 and L2 are a core's own, L3 is all threads'
  double bytes_per_ns;      // GB/s, read and written together, one thread
  double all_bytes_per_ns;  // the same of all threads (MachineModel::threads) together
  bool operator==(const MemoryLevel&) const = default;
};

struct MachineModel {
  static constexpr int kLevels = 4;
  static constexpr std::array<std::string_view, kLevels> kLevelNames = {"L1", "L2", "L3", "memory"};

  std::string name = "generic";               // for people; Key() tells all of it
  std::string isa;                            // the instruction set (CpuTarget::isa) for which the rates are
  int threads = 1;                            // of the machine on which it was measured
  std::array<MemoryLevel, kLevels> levels = {{// from the smallest; memory holds everything
                                              {32 << 10, 40, 40},
                                              {2 << 20, 40, 40},
                                              {32 << 20, 12, 12},
                                              {std::numeric_limits<double>::infinity(), 12, 12}}};
  // f32 multiply-adds that one thread of generated code does in a nanosecond. A vector instruction of the kind of an add takes as long as
  // one of a vector of multiply-adds (OpCost::slots counts in them).
  double multiply_adds_per_ns = 27;
  // From giving work to the threads of tenon's pool, which sleep, until the last is done, the work left out. A piece of work that takes as
  // long is worth a thread: two of them take as long as both on one thread, more gain.
  double fork_join_ns = 20000;
  // Of the f32 multiply-adds a second that generated tiles reach, the share that the library's matrix product reaches: products
  // of 128 x 768 x 3072 and 1024^3 on two threads. MKL has no code of its own for 512-bit vectors of AMD's processors. It decides who
  // computes, hence bits: of the table only, no file says it.
  double matmul_share = 1;
  bool operator==(const MachineModel&) const = default;

  // Of arrays of `bytes` together, each read or written once on so many threads: the time, in ns.
  double StreamNs(double bytes, int threads = 1) const;
  // What one vector of multiply-adds takes, of `vector_bytes` each.
  double SlotNs(int vector_bytes) const { return vector_bytes / 4.0 / multiply_adds_per_ns; }
  // Stands for all fields in cache keys: the name and a digest.
  std::string Key() const;
};

// The text of a machine file (JSON), and back. Everything but matmul_share, which is 1 in what is read. InvalidArgument says what is wrong:
// no JSON, another version, a field that is missing or unknown, a number that no machine has.
std::string PrintMachine(const MachineModel& model);
absl::StatusOr<MachineModel> ParseMachine(std::string_view text);

}  // namespace tenon
