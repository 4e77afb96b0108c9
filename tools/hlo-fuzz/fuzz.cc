#include "tools/hlo-fuzz/fuzz.h"

#include <cstdlib>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "hlo/check.h"
#include "tools/lab/random_inputs.h"
#include "tools/lab/reduce.h"
#include "tools/lab/regress.h"

namespace tenon::lab {
namespace {

void CountInstructions(const Module& module, Record* r) {
  r->instructions = module.instruction_count();
  for (const Computation* c : module.computations()) {
    for (const Instruction* i : c->instructions()) {
      ++r->opcodes[std::string(InfoOf(i->opcode()).name)];
      for (const Shape& leaf : FlattenShape(i->shape())) {
        if (leaf.is_array()) ++r->types[std::string(PrimitiveTypeName(leaf.element_type()))];
      }
    }
  }
}

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

// The module and its arguments, cut down to what fails for the same reason.
std::string Reduced(const FuzzOptions& options, const Module& module, const std::vector<Literal>& inputs, const RunOptions& run,
                    const Verdict& verdict, const Record& r) {
  const std::string comment = absl::StrCat("found by hlo-fuzz --seed=", options.seed, " --module=", r.k, ": ",
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

}  // namespace

uint64_t ModuleSeed(uint64_t seed, int64_t k) { return Random(Random(seed).Next() + static_cast<uint64_t>(k)).Next(); }

std::unique_ptr<Module> MakeModule(const FuzzOptions& options, int64_t k) {
  return RandomModule(ModuleSeed(options.seed, k), options.generator);
}

std::vector<RunOptions> ConfigurationsOf(const FuzzOptions& options, int64_t k) {
  std::vector<RunOptions> all;
  for (const std::string& isa : options.isas) {
    for (int threads : options.threads) {
      RunOptions run = options.run;
      run.isa = isa;
      run.threads = threads;
      all.push_back(run);
    }
  }
  Random random(ModuleSeed(options.seed, k) + 1);
  std::vector<RunOptions> chosen;
  while (!all.empty() && static_cast<int>(chosen.size()) < options.runs) {
    const int64_t at = random.Below(static_cast<int64_t>(all.size()));
    chosen.push_back(all[at]);
    all.erase(all.begin() + at);
  }
  return chosen;
}

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
  const std::vector<Literal> inputs = RandomInputs(*module, ModuleSeed(options.seed, k));
  const absl::StatusOr<Expectation> expected = Expect(*module, inputs);
  if (!expected.ok()) {
    r.outcome = Outcome::kEvaluatorError;
    r.text = std::string(expected.status().message());
    return r;
  }
  for (const RunOptions& run : ConfigurationsOf(options, k)) {
    const Verdict v = Judge(*module, inputs, *expected, run);
    r.elements += v.elements;
    r.bounded += v.bounded;
    r.unjudged += v.unjudged;
    if (v.outcome == Outcome::kSame) continue;
    r.outcome = v.outcome;
    r.configuration = run.ToString();
    r.text = v.text;
    if (v.outcome != Outcome::kRefused) r.file = Reduced(options, *module, inputs, run, v, r);
    break;
  }
  return r;
}

std::string Encode(const Record& r) {
  return absl::StrCat(r.k, "\t", static_cast<int>(r.outcome), "\t", r.configuration, "\t", absl::CEscape(r.text), "\t",
                      r.instructions, "\t", r.elements, "\t", r.bounded, "\t", r.unjudged, "\t", EncodeCounts(r.opcodes), "\t",
                      EncodeCounts(r.types), "\t", absl::CEscape(r.file));
}

Record Decode(const std::string& line) {
  const std::vector<std::string> f = absl::StrSplit(line, '\t');
  TENON_CHECK(f.size() == 11, line);
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
  return r;
}

}  // namespace tenon::lab
