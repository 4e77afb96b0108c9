// Runs the cases of tests/passes/*.hlo (pass_case.h): the golden, the truth about "changed", the verifier, the same numbers.
#include "gtest/gtest.h"


#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "backends/contract/provider.h"
#include "backends/driver/targets.h"
#include "hlo/eval/evaluator.h"
#include "hlo/own_calls.h"
#include "hlo/text/text.h"
#include "hlo/tolerance.h"
#include "passes/expand/control_flow.h"
#include "passes/lower/launches.h"
#include "passes/memory/buffer_plan.h"
#include "passes/fusion/attention.h"
#include "passes/pipeline.h"
#include "hlo/sizes.h"
#include "passes/spaces/spaces.h"
#include "runtime/host/functions.h"
#include "tests/hlo/text_files.h"
#include "tests/passes/pass_case.h"
#include "tests/passes/random_values.h"

namespace tenon {
namespace {

std::string RemarksText(const std::vector<Remark>& remarks) {
  std::string text;
  for (const Remark& r : remarks) {
    absl::StrAppend(&text, r.pass, " ", r.kind, " ", r.instruction, ": ", r.reason);
    for (const auto& [key, value] : r.numbers) absl::StrAppend(&text, " ", key, "=", value);
    text += "\n";
  }
  return text;
}

// The module at the sizes that the case names.
absl::StatusOr<std::unique_ptr<Module>> Specialized(const std::string& text, const std::string& symbols) {
  TENON_ASSIGN_OR_RETURN(std::unique_ptr<Module> module, ParseModule(text));
  TENON_ASSIGN_OR_RETURN(const Sizes sizes, ParseSizes(symbols));
  return sizes.empty() ? std::move(module) : WithSizes(*module, sizes);
}

// "refuses=tanh": fusions with a tanh that is not alone.
bool Refuses(const std::string& target, const Instruction& fusion) {
  if (!target.starts_with("refuses=")) return false;
  const Computation& fused = *fusion.fused_computation();
  return fused.instruction_count() > fusion.operand_count() + 1 && absl::c_any_of(fused.instructions(), [&](const Instruction* op) {
    return OpcodeName(op->opcode()) == target.substr(target.find('=') + 1);
  });
}

// The machine of the cases: AVX2, whatever this one is.
const Target& Avx2() {
  static const auto* target = new std::shared_ptr<const Target>(*MakeHostTarget("avx2", /*compile_only=*/true));
  return **target;
}

// "launches": every fusion's kernel runs twice, with memory between.
LaunchPlan InTwo(LaunchPlan plan, const Instruction& op) {
  using Kind = Launches::Memory::Kind;
  const Dim bytes = FlattenShape(op.shape())[0].byte_size();
  Launches two;
  two.temporaries = {bytes, 2 * bytes};
  two.launches = {{plan.target, {{Kind::kOperand, 0}}, {{Kind::kTemporary, 0}, {Kind::kTemporary, 1}}},
                  {plan.target, {{Kind::kTemporary, 0}, {Kind::kTemporary, 1}}, {{Kind::kResult, 0}}}};
  plan.target = std::make_shared<Launches>(std::move(two));
  return plan;
}

void SetTarget(const std::string& text, PassContext* context, LaunchPlans* plans) {
  if (text.starts_with("max_fusion_instructions=")) {
    context->target.max_fusion_instructions = context->target.max_loop_instructions = std::stoll(text.substr(text.find('=') + 1));
  } else {
    const std::string known[] = {"",           "convolutions",   "packs",      "device",   "device_rows",
                                 "device_products", "no_library", "launches", "attention", "host_attention", "generated", "packed",
                                 "few_rows",   "packs_in_place"};
    ASSERT_TRUE(absl::c_linear_search(known, text) || text.starts_with("refuses=")) << text;
  }
  ContractionSite site{.target = &Avx2(), .host_functions = kPlainFunctions};
  if (text == "no_library" || text == "few_rows") site.host_functions = 0;
  if (text == "few_rows") context->target.rows_as_sums = 2;
  if (text == "device_rows") {
    context->target.kept_row_bytes = 1 << 10;
    context->target.rows_at_once = 4;
    context->target.cache_bytes = 4 << 10;
  }
  if (text == "device_products") context->can_generate = [](const Instruction&) { return true; };
  if (text == "attention") {
    context->takes_attention = [](const Attention& a) { return Typical(a.x->shape().dim(a.x->shape().rank() - 1)) >= 4; };
  }
  const bool packs = text.starts_with("packs");
  if (packs) context->packs = [](const Instruction& op) { return Packs(op, {.target = &Avx2()}); };
  if (text == "packs_in_place") context->packs_where_it_lies = [](const Instruction&, absl::Span<const Dim>) { return true; };
  if (text == "convolutions" || packs) {
    site.host_functions |= Bit(HostFunction::kConvolution);
    context->can_generate = [site](const Instruction& op) { return Avx2().CanGenerate(op) && !TakenByLibrary(op, site); };
  }
  if (text == "packed") {
    site.host_functions |= Bit(HostFunction::kConvolution) | Bit(HostFunction::kLinearPacked) | Bit(HostFunction::kConvPacked);
  }
  if (text == "host_attention") site.host_functions |= Bit(HostFunction::kAttention) | Bit(HostFunction::kAttentionBackward);
  if (text == "generated") {
    site.host_functions |= Bit(HostFunction::kAttention);
    site.wanted = text;
  }
  context->provide_composite = [site](const Instruction& op) { return ProvideComposite(op, site); };
  context->library_takes = [site](const Instruction& op) { return TakenByLibrary(op, site); };
  context->folds_bias = [site](const Instruction& op, const Instruction& epilogue) { return BiasToFold(op, epilogue, site); };
  context->folds_behind = [site](const Instruction& op, std::vector<const Instruction*>* inside) { return BehindToFold(op, site, inside); };
  context->plan_launches = [text, site](const Instruction& op, const ValueViews& views) -> absl::StatusOr<LaunchPlan> {
    if (op.opcode() == Opcode::kFusion && Refuses(text, op)) return absl::UnimplementedError("the case refuses it");
    const Instruction* contraction = ContractionOf(op);
    if (contraction != nullptr && TakenByLibrary(*contraction, site)) return ChooseProvider(*contraction, site).provider->lower(op, views);
    absl::StatusOr<LaunchPlan> plan = Avx2().Plan(op, views, /*excess_precision=*/true);
    return text == "launches" && plan.ok() ? InTwo(*std::move(plan), op) : plan;
  };
  context->launch_plans = plans;
}

// A device that has code for everything but sine, in whose memory lie the parameters that say so.
Spaces DeviceOf(const Module& module) {
  Spaces spaces{.devices = {1}, .runs = [](const Instruction& op, int64_t) { return op.opcode() != Opcode::kSine; }, .main = 1};
  for (const Instruction* p : module.entry()->parameters()) {
    for (const Shape& leaf : FlattenShape(p->shape())) spaces.parameters.push_back(leaf.is_array() ? leaf.memory_space() : 0);
  }
  return spaces;
}

std::string MemoryText(const std::vector<Launches::Memory>& memory) {
  static constexpr std::string_view kKinds[] = {"operand", "result", "temporary"};
  return absl::StrJoin(memory, " and ", [](std::string* out, const Launches::Memory& m) {
    absl::StrAppend(out, std::string(kKinds[static_cast<size_t>(m.kind)]), " ", m.index);
  });
}

// A line for each fusion: "y: result 0 over operand 1, result 1 a copy of operand 2".
std::string LaunchesText(const Module& module, const LaunchPlans& plans) {
  std::string text;
  for (const Computation* c : ControlComputations(module)) {
    for (const Instruction* op : c->instructions()) {
      if (!plans.contains(op)) continue;
      std::vector<std::string> parts;
      const LaunchPlan& plan = plans.at(op);
      const auto* call = dynamic_cast<const PlannedCall*>(plan.target.get());
      if (call != nullptr) parts.push_back(absl::StrCat(call->function, ToString(call->args)));
      if (const Launches* several = LaunchesOf(plan)) {
        for (const Launches::Launch& l : several->launches) {
          parts.push_back(absl::StrCat(MemoryText(l.reads), " to ", MemoryText(l.writes)));
        }
        for (const Dim bytes : several->temporaries) parts.push_back(absl::StrCat("a temporary of ", bytes.ToString(), " bytes"));
      }
      if (plan.owned) parts.push_back("the host's memory");
      for (const auto& [operand, leaf] : plan.copies) parts.push_back(absl::StrCat("result ", leaf, " a copy of operand ", operand));
      for (const auto& [operand, leaf] : plan.may_overwrite) parts.push_back(absl::StrCat("result ", leaf, " over operand ", operand));
      absl::StrAppend(&text, op->name(), ": ", parts.empty() ? "nothing" : absl::StrJoin(parts, ", "), "\n");
    }
  }
  return text;
}

std::string PlanText(const Module& module, const LaunchPlans& plans, bool spaces) {
  BufferPlanOptions options;
  options.spaces = spaces;
  options.in_slot = [](const Instruction& op, int64_t leaf) {
    const auto written = WrittenOperands(op);
    return op.opcode() == Opcode::kCustomCall && !absl::c_any_of(written, [&](const WrittenOperand& w) { return w.leaf == leaf; });
  };
  options.direct_output = [](int64_t) { return true; };
  options.plans = &plans;
  auto plan = PlanBuffers(module, options);
  return plan.ok() ? plan->ToString() : plan.status().ToString();
}

ToleranceRule RuleOf(const std::string& numerics) {
  ToleranceRule rule = ToleranceRule::Exact();
  rule.zero_signs = true;
  if (numerics.starts_with("ulps ")) return ToleranceRule::Ulps(std::stoll(numerics.substr(5)));
  if (numerics == "close") return ToleranceRule::AbsRel(1e-5, 1e-5);
  EXPECT_EQ(numerics, "exact");
  return rule;
}

// "" or how the two modules' results differ.
std::string NumericDifference(const std::string& numerics, const std::string& symbols, const std::string& before_text,
                              const std::string& after_text) {
  if (numerics.starts_with("off: ")) return "";
  auto before = Specialized(before_text, symbols), after = Specialized(after_text, symbols);
  if (!before.ok() || !after.ok()) return absl::StrCat(before.status().ToString(), ", ", after.status().ToString());
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    std::mt19937_64 random(seed);
    const std::vector<Literal> arguments = RandomArguments(**before, /*extremes=*/numerics != "close", random);
    std::vector<std::string> checks_before, checks_after;
    auto want = EvaluateWithCalls(**before, arguments, &checks_before);
    auto got = EvaluateWithCalls(**after, arguments, &checks_after);
    if (!want.ok() || !got.ok()) return absl::StrCat(want.status().ToString(), ", ", got.status().ToString());
    const LiteralDifference difference = CompareLiterals(*got, *want, RuleOf(numerics));
    if (!difference.within) return absl::StrCat("seed ", seed, ": ", difference.what);
    if (checks_after != checks_before) return absl::StrCat("seed ", seed, ": other checks fired");
  }
  return "";
}

std::string Shown(const PassCase& c, Module& module, PassContext& context, const std::vector<Remark>& remarks) {
  if (c.print == "remarks") return RemarksText(remarks);
  if (c.print == "module") return Print(module);
  const absl::Status planned = RunPipeline(module, context, {.passes = {"lower-kernels"}}).status();
  if (!planned.ok()) return planned.ToString();
  const LaunchPlans& plans = *context.launch_plans;
  return c.print == "plan" ? PlanText(module, plans, context.spaces != nullptr) : LaunchesText(module, plans);
}

void RunCase(PassCase& c) {
  SCOPED_TRACE(c.name);
  auto module = ParseModule(c.input);
  ASSERT_TRUE(module.ok()) << module.status();
  const std::string before = Print(**module);
  std::vector<Remark> remarks;
  PassContext context;
  context.remarks = &remarks;
  context.evaluate = [](const Instruction& op, absl::Span<const Literal> operands) { return EvaluateInstruction(op, operands); };
  LaunchPlans plans;
  SetTarget(c.target, &context, &plans);
  Spaces spaces = DeviceOf(**module);
  if (c.target.starts_with("device")) context.spaces = &spaces;
  PipelineOptions options{.verify = true};
  if (c.run != "default") options.passes = absl::StrSplit(c.run, ',');
  const absl::StatusOr<bool> changed = RunPipeline(**module, context, options);
  ASSERT_TRUE(changed.ok()) << changed.status();
  const std::string after = Print(**module);
  if (c.print == "module") EXPECT_EQ(NumericDifference(c.numerics, c.symbols, before, after), "") << after;
  if (c.unchanged) {
    EXPECT_FALSE(*changed) << after;
    return;
  }
  const std::string got = Shown(c, **module, context, remarks);
  if (std::getenv("UPDATE_GOLDEN") != nullptr)
    c.expect = got;
  else
    EXPECT_EQ(got, c.expect) << "(UPDATE_GOLDEN=1 rewrites it)";
}

class Passes : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(Passes, Golden) {
  PassFile file = ReadPassFile(GetParam());
  ASSERT_FALSE(file.cases.empty());
  EXPECT_EQ(PrintPassFile(file), ReadTestFile(GetParam())) << "the file's form differs from what UPDATE_GOLDEN=1 writes";
  for (PassCase& c : file.cases) RunCase(c);
  if (std::getenv("UPDATE_GOLDEN") != nullptr && !HasFatalFailure()) ExpectGolden(GetParam(), PrintPassFile(file));
}

INSTANTIATE_TEST_SUITE_P(Files, Passes, testing::ValuesIn(TestFiles("passes")), [](const auto& info) {
  return absl::StrReplaceAll(info.param.stem().string(), {{"-", "_"}, {".", "_"}});
});

// Every pass has its file of cases, and every rule of simplify is named in one.
TEST(PassTests, EveryPassHasItsFile) {
  for (const PassInfo& pass : AllPasses()) {
    const std::string path =
        absl::StrCat(TENON_SOURCE_DIR, "/tests/passes/", absl::StrReplaceAll(std::string(pass.name), {{"-", "_"}}), ".hlo");
    EXPECT_TRUE(std::filesystem::exists(path)) << path;
  }
}

// The numeric check finds what no golden would: x + 0 is not x for x = -0, and a check that is lost.
TEST(PassTests, WrongNumbersAreFound) {
  const std::string before =
      "HloModule m ENTRY e { x = f32[64] parameter(0) z = f32[64] broadcast(f32[] constant(0)), dimensions={} ROOT r = add(x, z) "
      "}";
  const std::string after = "HloModule m ENTRY e { ROOT x = f32[64] parameter(0) }";
  EXPECT_NE(NumericDifference("exact", "", before, after), "");
  EXPECT_EQ(NumericDifference("exact", "", after, after), "");
  const std::string check = R"(HloModule m ENTRY e { ROOT x = f32[64] parameter(0) p = pred[] constant(true)
    c = pred[] custom-call(p), custom_call_target="tenon.check", custom_call_has_side_effect=true, backend_config={"check":0} })";
  EXPECT_EQ(NumericDifference("exact", "", check, after), "seed 1: other checks fired");
}

}  // namespace
}  // namespace tenon
