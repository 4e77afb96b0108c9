#include "tools/lab/gpu/placement.h"

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "hlo/own_calls.h"
#include "hlo/json.h"
#include "hlo/library/describe.h"
#include "passes/spaces/spaces.h"

namespace tenon::gpu {
namespace {

bool Computes(const Instruction& op) {
  constexpr Opcode kIdle[] = {Opcode::kParameter, Opcode::kConstant, Opcode::kTuple, Opcode::kGetTupleElement, Opcode::kBitcast};
  return !absl::c_linear_search(kIdle, op.opcode());
}

// Those that stand outside of kernels and are no views (passes/fusion/fused_form.h).
bool IsCall(const Instruction& op) {
  return op.opcode() == Opcode::kDot || op.opcode() == Opcode::kConvolution || IsFrameworkCall(op) || library::IsLibraryCall(op);
}

}  // namespace

Placement& Placement::operator+=(const Placement& other) {
  device += other.device;
  host += other.host;
  for (const auto& [opcode, count] : other.host_opcodes) host_opcodes[opcode] += count;
  return *this;
}

std::string Placement::ToJson() const {
  Json opcodes = Json::object();
  for (const auto& [opcode, count] : host_opcodes) opcodes[opcode] = count;
  return Json({{"device", device}, {"host", host}, {"host_opcodes", opcodes}}).dump();
}

Placement PlacementOf(const Module& module) {
  Placement sum;
  auto count = [&](const Instruction& op, int64_t space) {
    if (space != 0) {
      ++sum.device;
      return;
    }
    ++sum.host;
    ++sum.host_opcodes[std::string(OpcodeName(op.opcode()))];
  };
  absl::flat_hash_set<const Computation*> inside;  // of kernels: counted with them, or what they apply
  for (const Computation* c : module.computations()) {
    for (const Instruction* op : c->instructions()) {
      if (op->opcode() == Opcode::kFusion) inside.insert(op->fused_computation());
    }
  }
  for (const Computation* c : module.computations()) {
    for (const Instruction* op : c->instructions()) {
      if (op->opcode() == Opcode::kFusion) {
        for (const Instruction* inner : op->fused_computation()->instructions()) {
          if (Computes(*inner)) count(*inner, SpaceOf(op->shape()));
        }
      } else if (!inside.contains(c) && IsCall(*op)) {
        count(*op, SpaceOf(op->shape()));
      }
    }
  }
  return sum;
}

}  // namespace tenon::gpu
