// What a pass is. One pass: one pair of files <name>.{h,cc}, one row in passes.def, one text test tests/passes/<name>.hlo.
//
// A pass changes a module and says whether it did. In every test, and in builds with TENON_DEBUG_CHECKS, the pipeline compares the
// printed module before and after each pass and verifies it after those that said yes (VerifyByDefault in pipeline.h), so that a pass
// that misreports or breaks the module is named. Passes never print: every decision worth knowing is a Remark.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "hlo/framework_call.h"
#include "hlo/literal.h"
#include "hlo/module.h"
#include "passes/lower/launch_plan.h"

namespace tenon {

class ValueViews;
struct Attention;
struct Spaces;

// What the passes may know of the machine. Filled in by the backend.
struct TargetInfo {
  std::string name = "cpu";
  int vector_bytes = 32;
  int threads = 1;
  double bytes_per_ns = 12;  // streaming, one thread
  double flops_per_ns = 32;  // f32, one thread
  // Emitted instructions grow with it; more splits the fusion. Of a loop each value that a split leaves goes through memory twice, while
  // code costs little however long it is; passes over rows and columns compute values again.
  int64_t max_fusion_instructions = 200, max_loop_instructions = 1000;
  // A product of a matrix whose summed elements lie side by side with at most so many rows is as many reductions, which read it together.
  int64_t rows_as_sums = 1;
  // Of a device: bytes, in registers' types, of a row that a row kernel keeps between its passes; rows that are computed at once, and what
  // they share to be read again from.
  int64_t kept_row_bytes = 0, rows_at_once = 0, cache_bytes = 0;
};

// Where the user wrote it: "layer.0 @ net.py:12", either half if the other is unknown.
std::string SourceOf(const Instruction& op);

struct Remark {
  std::string pass, instruction, kind, reason;  // kind: "fused", "not-fused", "copied", "fallback", "split", ...
  std::vector<std::pair<std::string, double>> numbers;
  std::string source;  // provenance
  std::string ToJson() const;
};

// A call of a host's function (runtime/host/functions.h) in a composite's place: the same results. Operands are numbered as the
// composite's.
struct ProvidedCall {
  std::string_view function;
  FrameworkCallSite site;
};

struct PassContext {
  TargetInfo target;
  bool excess_precision = true;
  std::vector<Remark>* remarks = nullptr;  // may be null
  // Constant folding: the evaluator, injected by whoever links it. Null: no folding.
  std::function<absl::StatusOr<Literal>(const Instruction&, absl::Span<const Literal>)> evaluate;
  // Can the backend generate code for this instruction (opcode, types)? What it cannot is not fused. Null: everything.
  std::function<bool(const Instruction&)> can_generate;
  // Who computes this composite (pass take-composites), or why its body does. Null: bodies.
  std::function<absl::StatusOr<ProvidedCall>(const Instruction& composite)> provide_composite;
  // Does a library take this contraction as it stands? It stays a step of its own then. Null: dots of f16 and bf16 stay as they are.
  std::function<bool(const Instruction& contraction)> library_takes;
  // Would generated code compute this contraction better than a library, if its second operand is first brought into the order that it
  // reads (backends/contract/provider.h, Packs)? Null: no.
  std::function<bool(const Instruction& contraction)> packs;
  // Does generated code read the second operand of this contraction, which has `strides`, fast where it lies, though its columns don't lie
  // side by side? Null: no.
  std::function<bool(const Instruction& contraction, absl::Span<const Dim> strides)> packs_where_it_lies;
  // The bias that `epilogue`, an add or a fusion, adds to a contraction, if the contraction's library should do that (pass fold-bias).
  // Null: never.
  std::function<const Instruction*(const Instruction& contraction, const Instruction& epilogue)> folds_bias;
  // The contraction, or the fusion of one with what is behind it, or a reshape of either, of which `op` is an activation, or the sum with
  // another value, that the contraction's library should compute (pass fold-bias), and in `inside` what lies between, operands first, `op`
  // last: of the same dims, or scalars. Null: never.
  std::function<const Instruction*(const Instruction& op, std::vector<const Instruction*>* inside)> folds_behind;
  // Is there one kernel for this attention (pass fuse-attention)? Null: no.
  std::function<bool(const Attention& attention)> takes_attention;
  // Does the backend take this reduction in one pass, whatever the order of the elements? If not, each element of its result is a
  // loop of its own over the operand, so values of the operand's size stay out of its kernel. Null: yes.
  std::function<bool(const Instruction& reduce)> any_order;
  // Where a value lies that owns its memory, if its layout doesn't say so: strides of what a caller gives, of framework calls' results.
  // Null: the layouts say it.
  std::function<std::optional<DimVector>(const Instruction& op, int64_t leaf)> own_strides;
  // How a fusion, or a contraction outside of one, runs (pass lower-kernels). A fusion that is refused is split into its instructions.
  // Null: nothing is planned.
  std::function<absl::StatusOr<LaunchPlan>(const Instruction& op, const ValueViews& views)> plan_launches;
  LaunchPlans* launch_plans = nullptr;  // the plans made; not null where plan_launches isn't
  // Memory spaces of devices, and what they run (passes/spaces/spaces.h). Null: there is the host's memory only.
  Spaces* spaces = nullptr;
  int64_t max_folded_elements = 1 << 16;
  void Note(std::string_view pass, std::string_view kind, const Instruction& at, std::string reason,
            std::vector<std::pair<std::string, double>> numbers = {}) const;
};

using PassFn = absl::StatusOr<bool> (*)(Module&, PassContext&);

struct PassInfo {
  std::string_view name;  // "sink-transpose"
  PassFn run;
  std::string_view doc;
};
absl::Span<const PassInfo> AllPasses();  // the rows of passes.def
const PassInfo* FindPass(std::string_view name);

}  // namespace tenon
