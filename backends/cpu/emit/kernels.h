// The kinds of kernels that are the CPU's alone; those of all targets: backends/codegen/kernel/kernel_parts.h.
#pragma once

#include "backends/codegen/kernel/kernel_parts.h"

namespace tenon {

void EmitLoopKernel(KernelEmitter& e, const KernelPlan& plan);
void EmitColumnKernel(KernelEmitter& e, const KernelPlan& plan);
void EmitTransposeKernel(KernelEmitter& e, const KernelPlan& plan);
void EmitSortKernel(KernelEmitter& e, const KernelPlan& plan);

}  // namespace tenon
