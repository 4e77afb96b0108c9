// Scans, for lowerings that walk along a dim.
#pragma once

#include <functional>
#include <string_view>
#include <utility>

#include "torch_plugin/aten/lower/op_context.h"

namespace tenon::aten {

// The body of a scan, on slices of the dims without the scanned one: inputs' slices and carries -> outputs' slices and carries.
using ScanBody = std::function<Values(Builder& b, const Values& inputs, const Values& carries)>;

// A scan of `inputs` along `axis`; the results are the outputs, then the last carries.
Values Scan(OpContext& op, std::string_view name, const Values& inputs, const Values& starts, int64_t axis, const ScanBody& body);

// Of `x`, flat and in s64: per element the sum up to and with it, and as a scalar the sum of all.
std::pair<Instruction*, Instruction*> RunningCount(OpContext& op, Instruction* x);

}  // namespace tenon::aten
