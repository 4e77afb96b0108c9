// Verifier: the invariants of a module. The list stands at the top of verifier.cc, each with its label.
#pragma once

#include "absl/status/status.h"
#include "hlo/module.h"

namespace tenon {

struct VerifyOptions {
  bool layouts = false;    // every array instruction of the entry has a layout (after layout assignment)
  bool scheduled = false;  // instructions() is a topological order
  bool shapes = true;      // infer every shape again (the parser has done so already)
};
absl::Status Verify(const Module& module, const VerifyOptions& options = {});

}  // namespace tenon
