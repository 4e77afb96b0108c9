// What kernels take on a device whose memory they are bound by, against what copies of as many bytes take.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tenon::runner {

struct TimeOptions {
  std::string device;
  std::vector<int64_t> megabytes = {64, 256};  // of the largest operand; of rehearsals: kilobytes
  bool rehearsal = false;
  int samples = 15, runs = 5;  // medians of so many; runs between two events
  std::function<bool()> time_is_up = [] { return false; };
  std::function<void(const std::string&)> tell = [](const std::string&) {};
};

struct Timing {
  std::string name, type;
  std::vector<int64_t> dims;
  double flops = 0;      // multiplications and additions of a run; 0: memory bounds it
  double tflop_per_s() const { return us > 0 ? flops / us / 1e6 : 0; }
  int64_t bytes = 0;     // operands and results, once each
  int64_t launches = 0;  // a run's
  double us = 0;         // a run, by events; the median
  double gb_per_s() const { return us > 0 ? static_cast<double>(bytes) / us / 1e3 : 0; }
  double copy_us = 0;    // cuMemcpyDtoD of as many bytes, read and written
  double to_copy() const { return us > 0 ? copy_us / us : 0; }
  std::string error;     // it could not be timed
};

// Layer norm, softmax, sums of rows, of columns and of all, a transpose, a scan along rows, a copy by a kernel of ours; matrix products
// and attention by kernels of ours. f32 and bf16; attention of f16, too.
std::vector<Timing> RunTimes(const TimeOptions& options);

}  // namespace tenon::runner
