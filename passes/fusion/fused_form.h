// The form that the pipeline leaves for the backends. CheckFusedForm() asserts it.
//
// In the entry computation (and in while/conditional computations reachable from it) every instruction is one of
//   parameter, constant, tuple, get-tuple-element, while, conditional (regions of their own: one caller each), copy,
//   opt-barrier, after-all (nothing at run time),
//   a *view op*: bitcast, or reshape / transpose / slice / broadcast / reverse-free movement that is a pure re-stride of its
//     operand's buffer (the backend turns it into a View; copy insertion has put `copy` where it cannot be one),
//   dot or convolution that a library takes; with its bias it is a fusion of form contraction,
//   a library call (hlo/library/describe.h) on dense row-major operands and results,
//   custom-call "aten.*" and "prims.*" (framework steps), custom-call "tenon.check" only inside fusions,
//   fusion: everything else, even a single instruction. kind=kLoop/kInput/kCustom as XLA, and
//     backend_config={"tenon":{"kind":"loop|row|column|transpose|reduce|gather|scatter|window|concat|sort|scan|contraction|
//     attention"}}
//     row: reductions over the minor-most dims of one common row shape, elementwise around them (softmax, layer norm, rms norm,
//     mean...), several reductions in sequence allowed. column: reductions over outer dims, minor dim kept. reduce: any other.
//     scatter (scatter, select-and-scatter, dynamic-update-slice), sort (sort, topk), scan: that op, with constants, and with what
//     a sort or scan reads element by element, a scatter window by window. The fusion gives its results and nothing else: its array
//     or tuple, or (a tuple of) get-tuple-elements of it; of a scan also what is made of its elements one by one.
//     attention: two dots and the softmax between them (passes/fusion/attention.h).
// A multi-output fusion's root is a tuple. Fused computations contain no tuples otherwise (except an op of several results + gte), no
// nested fusions, no array constants above 16 elements (those are operands), no effects but tenon.check and no control edges.
// Every array instruction at this level has a layout. instructions() is the schedule (is_scheduled = true).
#pragma once

#include "absl/status/status.h"
#include "hlo/own_calls.h"
#include "hlo/module.h"

namespace tenon {

enum class FusionForm : uint8_t { kLoop, kRow, kColumn, kTranspose, kReduce, kGather, kScatter, kWindow, kConcat,
                                  kSort, kScan, kContraction, kAttention };
std::string_view FusionFormName(FusionForm form);
// Reads backend_config. Error if absent or unknown.
absl::StatusOr<FusionForm> FusionFormOf(const Instruction& fusion);
void SetFusionForm(Instruction* fusion, FusionForm form);
// A fusion of `fused`, named after `lead`, takes the place of `result` for all who read it; `result` stays, unread.
void ReplaceByFusion(Instruction* result, Computation* fused, absl::Span<Instruction* const> operands, FusionForm form,
                     const Instruction& lead);

// True if `op` only re-strides its operand's buffer given that buffer's layout (bitcast, transpose, dense reshape, slice,
// broadcast): the result is a View. Shared by copy insertion, buffer planning and the backend.
bool IsViewOp(const Instruction& op);

absl::Status CheckFusedForm(const Module& module);

}  // namespace tenon
