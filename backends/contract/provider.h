// Providers: who computes a contraction (dot, convolution), and what of the elementwise ops behind it at once; and who a composite
// (hlo/composite.h), of which `generated` takes the body.
//
// A provider is a row of a table: does it take this contraction, and how is it launched. The first that takes it computes it, unless
// another one that does is asked for by name. Adding one: docs/architecture/contractions.md.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "backends/contract/activation.h"
#include "passes/freeze/split_frozen.h"
#include "passes/lower/launch_plan.h"
#include "passes/memory/value_views.h"
#include "passes/pass.h"
#include "runtime/host/functions.h"
#include "runtime/program/program.h"

namespace tenon {

// A contraction as a call of a host's function (runtime/host/functions.h). The builder finds where the views' buffers lie.
class PlannedCall : public TargetPlan {
 public:
  std::string function;
  std::vector<FrameworkArg> args;
  std::vector<StridedView> operands;
  StridedView result;
  PrimitiveType type = PrimitiveType::kF32;  // of all of them
  ResultRule rule = ResultRule::kOut;
  std::string reason;  // FrameworkStep::reason
};

class Target;

// What providers know of where a contraction will run.
struct ContractionSite {
  const Target* target = nullptr;  // never null; borrowed. Its table of providers is asked
  uint64_t host_functions = 0;  // TenonHost::functions
  bool excess_precision = true;
  std::string wanted;  // a provider's name; "": the first that takes it
};

struct Provider {
  std::string_view name;
  // OK, or why it does not take this contraction.
  absl::Status (*takes)(const Instruction& contraction, const ContractionSite& site);
  // Whether it adds a bias, a vector along the result's columns or features: never; where the add would be a kernel of its own; always.
  enum class Bias : uint8_t { kNever, kAlone, kAlways } bias;
  // How it is launched, `op` being the contraction or a fusion of it and what is behind it. Null: as a kernel.
  absl::StatusOr<LaunchPlan> (*lower)(const Instruction& op, const ValueViews& views);
  uint32_t activations = 0;  // which it applies too (Bit of activation.h), to f16, bf16 and f32
  bool sums = false;         // whether it adds another value of the result's shape, behind the bias, where no activation is behind that
  // Not null: it takes composites, and this is the call.
  absl::StatusOr<ProvidedCall> (*call)(const Instruction& composite) = nullptr;
};

// The host's functions and `generated`: the providers of a target whose memory is the host's.
absl::Span<const Provider> HostProviders();

// InvalidArgument: none of the targets has a provider of that name.
absl::Status CheckProviderName(std::string_view name, absl::Span<const std::shared_ptr<const Target>> targets);

struct Choice {
  const Provider* provider = nullptr;  // null: nobody takes it
  std::vector<std::string> refusals;   // "host.convolution: ..."
};
Choice ChooseProvider(const Instruction& contraction, const ContractionSite& site);

// PassContext::provide_composite.
absl::StatusOr<ProvidedCall> ProvideComposite(const Instruction& composite, const ContractionSite& site);

// The dot or convolution that `op` is, or that the fusion `op` holds; null: none.
const Instruction* ContractionOf(const Instruction& op);

// Its provider computes it as it stands, and not as a kernel.
bool TakenByLibrary(const Instruction& contraction, const ContractionSite& site);
// Adds `epilogue`, an add or a fusion of nothing else, a bias that the contraction's provider should add? That bias, else null.
const Instruction* BiasToFold(const Instruction& contraction, const Instruction& epilogue, const ContractionSite& site);

// PassContext::folds_behind.
const Instruction* BehindToFold(const Instruction& op, const ContractionSite& site, std::vector<const Instruction*>* inside);

// What the contraction that is `op`, or that the fusion `op` holds with its bias, another value that is added and an activation at most,
// is made of: values outside of that fusion.
// Unimplemented: the fusion holds something else.
struct ContractionOperands {
  const Instruction *contraction = nullptr, *lhs = nullptr, *rhs = nullptr, *bias = nullptr, *other = nullptr;
  Activation activation = Activation::kNone;
};
absl::StatusOr<ContractionOperands> OperandsOf(const Instruction& op);

// The host has this function, for the one type of the contraction's arrays.
absl::Status HostHas(HostFunction function, const Instruction& contraction, const ContractionSite& site);

// The rows.
absl::Status GeneratedTakes(const Instruction& contraction, const ContractionSite& site);
absl::Status MatmulTakes(const Instruction& contraction, const ContractionSite& site);
absl::StatusOr<LaunchPlan> LowerMatmul(const Instruction& op, const ValueViews& views);
// As LowerMatmul, where an activation may be behind it: applying it is the caller's.
absl::StatusOr<LaunchPlan> LowerActivatedMatmul(const Instruction& op, const ValueViews& views);
absl::Status ConvolutionTakes(const Instruction& contraction, const ContractionSite& site);
absl::StatusOr<LaunchPlan> LowerConvolution(const Instruction& op, const ValueViews& views);
// As LowerConvolution, where more than a bias may be behind it: that is the caller's.
absl::StatusOr<LaunchPlan> LowerBareConvolution(const Instruction& op, const ContractionOperands& c, const ValueViews& views);
// A view of the convolution's result, or of a value like it, as [batch, features, space...].
StridedView ImagesOfResult(const Instruction& convolution, const StridedView& view);
// host.linear_packed, host.conv_packed take what SplitFrozen named them for (passes/freeze): the second operand is an input that the host
// keeps as it likes it.
absl::Status LinearPackedTakes(const Instruction& contraction, const ContractionSite& site);
absl::StatusOr<LaunchPlan> LowerLinearPacked(const Instruction& op, const ValueViews& views);
absl::Status ConvPackedTakes(const Instruction& contraction, const ContractionSite& site);
absl::StatusOr<LaunchPlan> LowerConvPacked(const Instruction& op, const ValueViews& views);
// Who should compute this contraction by a second operand that stays as it is from call to call, and what the host is told when it packs
// it (InputSpec::packing). `provider` "generated": in the order that Packs says. nullopt: it is computed like any other.
std::optional<KernelPacking> PackedFor(const Instruction& contraction, const ContractionSite& site);
// A convolution that is the gradient of another one's kernel, or as well such a one.
bool IsKernelGradient(const Instruction& contraction);
absl::Status AttentionTakes(const Instruction& composite, const ContractionSite& site);
absl::StatusOr<ProvidedCall> CallAttention(const Instruction& composite);

// Whether `generated` computes this f32 dot or convolution well if its second operand lies as it reads it: [taps..., input features, output
// features], a matrix as [sums, columns]; a convolution's other values with their features fastest.
bool Packs(const Instruction& contraction, const ContractionSite& site);

}  // namespace tenon
