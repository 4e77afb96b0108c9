// Host: the framework as the runtime sees it; a thin C++ view of TenonHost, and a framework-free
// default.
#pragma once

#include <string>
#include <string_view>

#include "runtime/tenon_c.h"

namespace tenon {

// malloc (under TENON_GUARD guarded memory, aligned to an array's elements only: guarded_memory.h), a small thread pool (or
// serial), no framework operators: for tests and tools.
// Process-wide, never destroyed.
const TenonHost* DefaultHost();

// A range in the framework's profiler, "tenon::<name>"; none without a host.
class HostRange {
 public:
  HostRange(const TenonHost* host, std::string_view name) : host_(host) {
    if (host != nullptr) range_ = host->range_begin(host->context, ("tenon::" + std::string(name)).c_str());
  }
  ~HostRange() {
    if (range_ != nullptr) host_->range_end(host_->context, range_);
  }
  HostRange(const HostRange&) = delete;

 private:
  const TenonHost* host_;
  void* range_ = nullptr;
};

}  // namespace tenon
