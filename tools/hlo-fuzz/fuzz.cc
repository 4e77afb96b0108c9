#include "tools/hlo-fuzz/fuzz.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "hlo/check.h"
#include "tools/hlo-fuzz/fuzz_parts.h"
#include "tools/lab/generate/random_inputs.h"
#include "tools/lab/gpu/emulated_target.h"
#include "tools/lab/reduce/reduce.h"
#include "tools/lab/regress.h"

namespace tenon::lab {
namespace {

std::string EncodeCounts(const std::map<std::string, int64_t>& counts) {
  std::string text;
  for (const auto& [name, n] : counts) absl::StrAppend(&text, text.empty() ? "" : ",", name, "=", n);
  return text;
}

std::map<std::string, int64_t> DecodeCounts(const std::string& text) {
  std::map<std::string, int64_t> counts;
  for (absl::string_view entry : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(entry, absl::MaxSplits('=', 1));
    counts[parts.first] = std::atoll(parts.second.c_str());
  }
  return counts;
}

}  // namespace

namespace {

bool HasSymbolicSize(const Shape& shape) {
  for (const Shape& leaf : FlattenShape(shape)) {
    for (Dim d : leaf.dims()) {
      if (!d.is_constant()) return true;
    }
  }
  return false;
}

bool TakesSymbols(const Instruction& op) {
  if (HasSymbolicSize(op.shape())) return true;
  return std::any_of(op.operands().begin(), op.operands().end(), [](const Instruction* o) { return HasSymbolicSize(o->shape()); });
}

}  // namespace

void CountInstructions(const Module& module, Record* r) {
  r->instructions = module.instruction_count();
  for (const Computation* c : module.computations()) {
    for (const Instruction* i : c->instructions()) {
      ++r->opcodes[std::string(InfoOf(i->opcode()).name)];
      if (TakesSymbols(*i)) r->symbolic[std::string(InfoOf(i->opcode()).name)] = 1;
      for (const Shape& leaf : FlattenShape(i->shape())) {
        if (leaf.is_array()) ++r->types[std::string(PrimitiveTypeName(leaf.element_type()))];
      }
    }
  }
}

std::string ReducedFile(const FuzzOptions& options, const Module& module, const std::vector<Literal>& inputs, const RunOptions& run,
                    const Verdict& verdict, const Record& r) {
  const char* symbols = options.generator.symbols ? " --symbols" : "";
  const std::string comment = absl::StrCat("found by hlo-fuzz", symbols, " --seed=", options.seed, " --module=", r.k, ": ",
                                           std::string(OutcomeName(r.outcome)), " (", r.configuration, ")\n", r.text);
  if (options.reduce_seconds > 0) {
    const auto fails = [&](const Module& m, absl::Span<const Literal> arguments) {
      return SameFailure(Judge(m, arguments, run), verdict);
    };
    absl::StatusOr<ReduceResult> reduced = Reduce(module, inputs, StillFails(fails), {.max_seconds = options.reduce_seconds});
    if (reduced.ok()) return PrintRegress(*reduced->module, reduced->arguments, comment);
  }
  return PrintRegress(module, inputs, comment);
}

uint64_t ModuleSeed(uint64_t seed, int64_t k) { return Random(Random(seed).Next() + static_cast<uint64_t>(k)).Next(); }

bool IsLarge(const FuzzOptions& options, int64_t k) {
  return options.large_every > 0 && !options.generator.symbols && k % options.large_every == options.large_every - 1;
}

std::unique_ptr<Module> MakeModule(const FuzzOptions& options, int64_t k) {
  const uint64_t seed = ModuleSeed(options.seed, k);
  if (!IsLarge(options, k)) return RandomModule(seed, options.generator);
  GeneratorOptions large = options.generator;
  const bool emulated = options.run.target.starts_with(gpu::kEmulatedName);  // sorts 2^19 elements in a minute and a half
  large.max_elements = int64_t{1} << Random(seed + 2).Between(14, emulated ? 17 : 20);
  large.size = 4;
  for (const char* slow : {"control", "linalg", "scan"}) large.without.emplace_back(slow);  // for the evaluator
  return RandomModule(seed, large);
}

std::vector<RunOptions> ConfigurationsOf(const FuzzOptions& options, int64_t k) {
  std::vector<RunOptions> all;
  for (const std::string& isa : options.isas) {
    for (int threads : options.threads) {
      RunOptions run = options.run;
      run.isa = isa;
      run.threads = threads;
      if (IsLarge(options, k)) run.max_grain = 0;
      all.push_back(run);
    }
  }
  Random random(ModuleSeed(options.seed, k) + 1);
  std::vector<RunOptions> chosen;
  size_t turn = static_cast<size_t>(random.Below(static_cast<int64_t>(options.excess_precision.size())));
  while (!all.empty() && static_cast<int>(chosen.size()) < options.runs) {
    const int64_t at = random.Below(static_cast<int64_t>(all.size()));
    chosen.push_back(all[at]);
    if (random.Below(3) == 0) chosen.back().provider = "generated";
    if (options.run.target == gpu::kEmulatedName) {
      const bool small = random.Below(2) == 0, ptx = random.Below(2) == 0;
      absl::StrAppend(&chosen.back().target, small ? ":sm_80,sms=1,threads_per_sm=8" : ":sm_90", ptx ? ",ptx" : "");
    }
    // Frozen values are of the very sizes (docs/architecture/sizes.md).
    if (random.Below(3) == 0) chosen.back().frozen = options.generator.symbols ? 0 : random.Next();
    if (options.run.target.empty() && random.Below(4) == 0) chosen.back().plans = random.Next() | 1;
    chosen.back().excess_precision = options.excess_precision[turn++ % options.excess_precision.size()];
    all.erase(all.begin() + at);
  }
  return chosen;
}

namespace {

// The two sets of inputs of a module, and what is expected of each: with and without excess precision, made when first asked for.
class Inputs {
 public:
  Inputs(const Module& module, uint64_t seed) : module_(module), arguments_{RandomInputs(module, seed), RandomInputs(module, ~seed)} {}

  const std::vector<Literal>& arguments(int set) const { return arguments_[set]; }
  const absl::StatusOr<Expectation>& expected(int set, bool excess_precision) {
    std::optional<absl::StatusOr<Expectation>>& e = expected_[set][excess_precision ? 1 : 0];
    if (!e.has_value()) e = Expect(module_, arguments_[set], excess_precision);
    return *e;
  }

 private:
  const Module& module_;
  std::vector<Literal> arguments_[2];
  std::optional<absl::StatusOr<Expectation>> expected_[2][2];
};

// One configuration on both sets; `set`: the one of the verdict.
Verdict RunOn(const Module& module, Inputs& inputs, const RunOptions& run, Record* r, int* set) {
  Verdict v;
  const std::unique_ptr<Subject> subject = Subject::Compile(module, run, &v);
  for (*set = 0; *set < 2 && subject != nullptr && v.outcome == Outcome::kSame; ++*set) {
    const absl::StatusOr<Expectation>& expected = inputs.expected(*set, run.excess_precision);
    if (!expected.ok()) break;  // the first set's is looked at before
    v = *set == 0 ? subject->RunThrice(inputs.arguments(0), *expected) : subject->Run(inputs.arguments(1), *expected);
    r->elements += v.elements;
    r->bounded += v.bounded;
    r->unjudged += v.unjudged;
    if (v.outcome != Outcome::kSame) break;
  }
  *set = std::min(*set, 1);
  return v;
}

}  // namespace

Record FuzzOne(const FuzzOptions& options, int64_t k) {
  Record r{.k = k};
  std::unique_ptr<Module> module;
  try {
    module = MakeModule(options, k);
  } catch (const InternalError& e) {
    r.outcome = Outcome::kEvaluatorError;
    r.text = absl::StrCat("generator: ", e.what());
    return r;
  }
  CountInstructions(*module, &r);
  if (options.generator.symbols) return FuzzSizes(options, *module, std::move(r));
  Inputs inputs(*module, ModuleSeed(options.seed, k));
  for (const RunOptions& run : ConfigurationsOf(options, k)) {
    if (const auto& expected = inputs.expected(0, run.excess_precision); !expected.ok()) {
      r.outcome = Outcome::kEvaluatorError;
      r.text = std::string(expected.status().message());
      return r;
    }
    int set = 0;
    const Verdict v = RunOn(*module, inputs, run, &r, &set);
    if (v.outcome == Outcome::kSame) continue;
    r.outcome = v.outcome;
    r.configuration = run.ToString();
    r.text = v.text;
    if (v.outcome != Outcome::kRefused) r.file = ReducedFile(options, *module, inputs.arguments(set), run, v, r);
    break;
  }
  return r;
}

std::string Encode(const Record& r) {
  return absl::StrCat(r.k, "\t", static_cast<int>(r.outcome), "\t", r.configuration, "\t", absl::CEscape(r.text), "\t",
                      r.instructions, "\t", r.elements, "\t", r.bounded, "\t", r.unjudged, "\t", EncodeCounts(r.opcodes), "\t",
                      EncodeCounts(r.types), "\t", absl::CEscape(r.file), "\t", r.calls, "\t", r.refused_calls, "\t",
                      EncodeCounts(r.symbolic));
}

Record Decode(const std::string& line) {
  const std::vector<std::string> f = absl::StrSplit(line, '\t');
  TENON_CHECK(f.size() == 14, line);
  Record r;
  r.k = std::atoll(f[0].c_str());
  r.outcome = static_cast<Outcome>(std::atoi(f[1].c_str()));
  r.configuration = f[2];
  absl::CUnescape(f[3], &r.text);
  r.instructions = std::atoll(f[4].c_str());
  r.elements = std::atoll(f[5].c_str());
  r.bounded = std::atoll(f[6].c_str());
  r.unjudged = std::atoll(f[7].c_str());
  r.opcodes = DecodeCounts(f[8]);
  r.types = DecodeCounts(f[9]);
  absl::CUnescape(f[10], &r.file);
  r.calls = std::atoll(f[11].c_str());
  r.refused_calls = std::atoll(f[12].c_str());
  r.symbolic = DecodeCounts(f[13]);
  return r;
}

}  // namespace tenon::lab
