// hlo-run: runs an HLO module on the evaluator and the CPU backend and says where and how far results differ.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "backends/literal_executable.h"
#include "hlo/eval/evaluator.h"
#include "hlo/plant.h"
#include "hlo/text/text.h"
#include "hlo/tolerance.h"
#include "tools/lab/npy.h"

namespace tenon {
namespace {

constexpr const char kUsage[] =
    R"(usage: hlo-run [options] file.hlo       ("-" reads standard input)

Runs the module on the reference evaluator and on the CPU backend with the same inputs and compares: for each output
the element that is furthest off, with its index, absolute and relative difference, and the largest distance in ULP.
The CPU backend hands dots to a framework's library; there is none here, so they run as plain loops: right, not fast.

  --backend=both|eval|cpu   both (default) compares cpu with the evaluator
  --inputs=FILE.npz         inputs: members in0, in1, ... or arg0, ... or in file order, by parameter leaf
  --input=FILE.npy          one input; repeat for each
  --seed=N                  random inputs where no file is given (default 0): floats uniform in [-1, 1), integers in
                            [0, 4), pred 0 or 1
  --expect=FILE.npz         compare with these outputs (out0, out1, ... or file order) instead
  --save=FILE.npz           write the outputs (out0, out1, ...) of the evaluator, or of cpu with --backend=cpu
  --print                   print the outputs as literals
  --atol=X --rtol=X         |got-want| <= atol + rtol*|want|; default by type: f32 1e-5, f64 1e-12, f16 2e-3, bf16 1.6e-2,
                            8-bit floats 0.125, integers and pred exact
  --ulp=N                   at most N units in the last place instead
  --repeat=N                run the CPU executable N times, print the best time
  --isa=NAME                CPU instruction set: avx512, avx2, sse4
  --passes=a,b --disable=a,b --stop-after=a --dump=DIR   as in hlo-opt and TENON_DUMP
  --no-excess-precision     round bf16 and f16 after every instruction, as the evaluator does
  --fill-elided             fill {...} constants deterministically
  --plant=K                 with planted bug K (hlo-reduce --list-plants)
  --help                    this text

Exit code: 0 all outputs agree, 1 they differ, 2 bad usage, 3 the module was refused or didn't run.
)";

struct Options {
  std::string file, backend = "both", inputs, expect, save;
  std::vector<std::string> input_files;
  uint64_t seed = 0;
  double atol = -1, rtol = -1;
  int64_t ulp = -1;
  int repeat = 1;
  bool print = false;
  ParseOptions parse;
  CompileOptions compile;
};

std::vector<std::string> Names(const std::string& list) {
  std::vector<std::string> names;
  size_t from = 0;
  while (from <= list.size()) {
    const size_t comma = std::min(list.find(',', from), list.size());
    if (comma > from) names.push_back(list.substr(from, comma - from));
    from = comma + 1;
  }
  return names;
}

// Flags of the form --key=value. False: unknown.
bool SetFlag(const std::string& key, const std::string& value, Options* o) {
  if (key == "--backend") o->backend = value;
  else if (key == "--inputs") o->inputs = value;
  else if (key == "--input") o->input_files.push_back(value);
  else if (key == "--seed") o->seed = std::strtoull(value.c_str(), nullptr, 10);
  else if (key == "--expect") o->expect = value;
  else if (key == "--save") o->save = value;
  else if (key == "--print") o->print = true;
  else if (key == "--atol") o->atol = std::atof(value.c_str());
  else if (key == "--rtol") o->rtol = std::atof(value.c_str());
  else if (key == "--ulp") o->ulp = std::atoll(value.c_str());
  else if (key == "--repeat") o->repeat = std::atoi(value.c_str());
  else if (key == "--isa") o->compile.isa = value;
  else if (key == "--passes") o->compile.passes = Names(value);
  else if (key == "--disable") o->compile.disable_passes = Names(value);
  else if (key == "--stop-after") o->compile.stop_after = value;
  else if (key == "--dump") o->compile.dump_dir = value;
  else if (key == "--no-excess-precision") o->compile.excess_precision = false;
  else if (key == "--fill-elided") o->parse.fill_elided_constants = true;
  else if (key == "--plant") return ParsePlant(value).has_value() && SetPlant(*ParsePlant(value));
  else return false;
  return true;
}

bool ParseFlags(int argc, char** argv, Options* o) {
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg.size() > 1 && arg[0] == '-') {
      const size_t equals = std::min(arg.find('='), arg.size());
      const std::string value = equals < arg.size() ? arg.substr(equals + 1) : "";
      if (SetFlag(arg.substr(0, equals), value, o)) continue;
      std::cerr << "hlo-run: unknown option " << arg << " (--help lists them)\n";
      return false;
    }
    if (!o->file.empty()) return std::cerr << "hlo-run: one file, please (--help tells more)\n", false;
    o->file = arg;
  }
  if (o->file.empty()) return std::cerr << "hlo-run: no file (--help tells more)\n", false;
  if (o->backend == "both" || o->backend == "eval" || o->backend == "cpu") return true;
  return std::cerr << "hlo-run: --backend is both, eval or cpu\n", false;
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  if (path == "-") return std::string(std::istreambuf_iterator<char>(std::cin), {});
  std::ifstream in(path, std::ios::binary);
  if (!in) return absl::NotFoundError(absl::StrCat("cannot open ", path));
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// The members of an .npz by number where they are named <prefix><number>, else in file order.
absl::StatusOr<std::vector<std::string>> ReadArrays(const std::string& path) {
  absl::StatusOr<std::string> bytes = ReadFile(path);
  if (!bytes.ok()) return bytes.status();
  auto members = ReadZip(*bytes);
  if (!members.ok()) return absl::InvalidArgumentError(absl::StrCat(path, ": ", members.status().message()));
  std::map<int64_t, std::string> numbered;
  for (const auto& [name, data] : *members) {
    const size_t digits = name.find_last_not_of("0123456789") + 1;
    if (digits < name.size()) numbered[std::atoll(name.c_str() + digits)] = data;
  }
  std::vector<std::string> arrays;
  if (numbered.size() == members->size()) {
    for (auto& [number, data] : numbered) arrays.push_back(std::move(data));
  } else {
    for (auto& [name, data] : *members) arrays.push_back(std::move(data));
  }
  return arrays;
}

absl::StatusOr<std::vector<std::string>> InputFiles(const Options& o) {
  if (!o.inputs.empty()) return ReadArrays(o.inputs);
  std::vector<std::string> arrays;
  for (const std::string& path : o.input_files) {
    absl::StatusOr<std::string> bytes = ReadFile(path);
    if (!bytes.ok()) return bytes.status();
    arrays.push_back(*std::move(bytes));
  }
  return arrays;
}

Literal RandomArray(const Shape& shape, std::mt19937_64& rng) {
  Literal l(Shape::Array(shape.element_type(), shape.constant_dims()));
  const PrimitiveType type = l.type();
  auto unit = [&] { return static_cast<double>(rng() >> 11) * 0x1p-53; };
  if (IsComplex(type)) {
    Literal parts(Shape::Array(ComplexComponent(type), {2 * l.num_elements()}));
    for (int64_t i = 0; i < parts.num_elements(); ++i) parts.SetFromDouble(i, 2 * unit() - 1);
    if (l.num_elements() > 0) std::copy_n(parts.bytes(), l.size_bytes(), l.mutable_bytes());
    return l;
  }
  for (int64_t i = 0; i < l.num_elements(); ++i) {
    if (IsFloat(type)) {
      l.SetFromDouble(i, 2 * unit() - 1);
    } else {
      const int64_t values = type == PrimitiveType::kPred || BitWidth(type) == 1 ? 2 : BitWidth(type) == 2 ? 2 : 4;
      l.SetFromInt64(i, static_cast<int64_t>(rng() % values));
    }
  }
  return l;
}

// One argument from files (its leaves in order) or random.
absl::StatusOr<Literal> Argument(const Shape& shape, std::vector<std::string>* files, size_t* next,
                                 std::mt19937_64& rng) {
  if (shape.is_tuple()) {
    std::vector<Literal> elements;
    for (const Shape& e : shape.elements()) {
      absl::StatusOr<Literal> element = Argument(e, files, next, rng);
      if (!element.ok()) return element.status();
      elements.push_back(*std::move(element));
    }
    return Literal::Tuple(std::move(elements));
  }
  if (!shape.is_array() || !shape.is_static()) {
    return absl::UnimplementedError(absl::StrCat("no input of shape ", shape.ToString(), " can be made"));
  }
  if (files->empty()) return RandomArray(shape, rng);
  if (*next >= files->size()) {
    return absl::InvalidArgumentError(absl::StrCat("wanted more than ", files->size(), " inputs"));
  }
  absl::StatusOr<Literal> l = ParseNpy((*files)[*next], shape);
  if (!l.ok()) return absl::InvalidArgumentError(absl::StrCat("input ", *next, ": ", l.status().message()));
  ++*next;
  return l;
}

absl::StatusOr<std::vector<Literal>> Arguments(const Module& module, const Options& o) {
  absl::StatusOr<std::vector<std::string>> files = InputFiles(o);
  if (!files.ok()) return files.status();
  std::mt19937_64 rng(o.seed);
  std::vector<Literal> args;
  size_t next = 0;
  for (const Instruction* p : module.entry()->parameters()) {
    absl::StatusOr<Literal> arg = Argument(p->shape(), &*files, &next, rng);
    if (!arg.ok()) return arg.status();
    args.push_back(*std::move(arg));
  }
  if (next < files->size()) {
    return absl::InvalidArgumentError(absl::StrCat("wanted ", next, " inputs, got ", files->size()));
  }
  return args;
}

void AppendLeaves(const Literal& l, std::vector<Literal>* leaves) {
  if (!l.shape().is_tuple()) return leaves->push_back(l);
  for (const Literal& e : l.elements()) AppendLeaves(e, leaves);
}

ToleranceRule RuleFor(PrimitiveType type, const Options& o) {
  if (o.ulp >= 0) return ToleranceRule::Ulps(o.ulp);
  double own = 0;
  switch (ComplexComponent(type)) {
    case PrimitiveType::kF64: own = 1e-12; break;
    case PrimitiveType::kF32: own = 1e-5; break;
    case PrimitiveType::kF16: own = 2e-3; break;
    case PrimitiveType::kBF16: own = 1.6e-2; break;
    default: own = IsFloat(type) ? 0.125 : 0;
  }
  return ToleranceRule::AbsRel(o.atol < 0 ? own : o.atol, o.rtol < 0 ? own : o.rtol);
}

// Prints a line per output; the number of outputs that differ by more than the rule allows.
int Report(const std::vector<Literal>& got, const std::vector<Literal>& want, const std::string& what,
           const Options& o) {
  int off = 0;
  if (got.size() != want.size()) {
    std::printf("%s: wanted %zu outputs, got %zu\n", what.c_str(), want.size(), got.size());
    return 1;
  }
  for (size_t i = 0; i < got.size(); ++i) {
    const LiteralDifference d = CompareLiterals(got[i], want[i], RuleFor(got[i].type(), o));
    if (!d.within) ++off;
    const std::string shape = got[i].shape().ToString();
    if (d.elements == 0 || d.what.empty()) {
      std::printf("%s output %zu %s: equal%s\n", what.c_str(), i, shape.c_str(),
                  d.ulp > 0 ? absl::StrFormat(" within tolerance, largest distance %d ULP", d.ulp).c_str() : "");
      continue;
    }
    std::printf("%s output %zu %s: %s; %s\n", what.c_str(), i, shape.c_str(),
                d.within ? "within tolerance"
                         : absl::StrFormat("%d of %d elements off", d.differing, d.elements).c_str(),
                absl::StrFormat("worst at [%s]: got %.9g, want %.9g, abs %.3g, rel %.3g; largest distance %d ULP",
                                absl::StrJoin(d.index, ","), d.got, d.want, d.abs, d.rel, d.ulp)
                    .c_str());
  }
  return off;
}

absl::Status Save(const std::string& path, const std::vector<Literal>& outputs) {
  std::vector<std::pair<std::string, std::string>> members;
  for (size_t i = 0; i < outputs.size(); ++i) members.emplace_back(absl::StrCat("out", i), WriteNpy(outputs[i]));
  std::ofstream out(path, std::ios::binary);
  out << WriteZip(members);
  return out.good() ? absl::OkStatus() : absl::InternalError(absl::StrCat("cannot write ", path));
}

absl::StatusOr<std::vector<Literal>> Expected(const std::string& path, const Module& module) {
  absl::StatusOr<std::vector<std::string>> arrays = ReadArrays(path);
  if (!arrays.ok()) return arrays.status();
  const std::vector<Shape> leaves = FlattenShape(module.entry()->root()->shape());
  if (arrays->size() != leaves.size()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": wanted ", leaves.size(), " outputs, got ", arrays->size()));
  }
  std::vector<Literal> want;
  for (size_t i = 0; i < leaves.size(); ++i) {
    absl::StatusOr<Literal> l = ParseNpy((*arrays)[i], leaves[i]);
    if (!l.ok()) return absl::InvalidArgumentError(absl::StrCat("expected output ", i, ": ", l.status().message()));
    want.push_back(*std::move(l));
  }
  return want;
}

absl::StatusOr<std::vector<Literal>> RunOnCpu(const Module& module, absl::Span<const Literal> args, const Options& o) {
  CompileOptions compile = o.compile;
  compile.evaluate = ConstantFolder();
  TENON_ASSIGN_OR_RETURN(std::unique_ptr<LiteralExecutable> executable, LiteralExecutable::Compile(module, compile));
  std::vector<Literal> outputs;
  double best_us = 1e30;
  for (int n = 0; n < std::max(1, o.repeat); ++n) {
    double us = 0;
    TENON_ASSIGN_OR_RETURN(outputs, executable->Run(args, &us));
    best_us = std::min(best_us, us);
  }
  std::printf("cpu: compiled in %.1f ms, ran in %.1f us\n", executable->compile_ms(), best_us);
  return outputs;
}

// The number of outputs that are off.
absl::StatusOr<int> Run(const Options& o) {
  absl::StatusOr<std::string> text = ReadFile(o.file);
  if (!text.ok()) return text.status();
  absl::StatusOr<std::unique_ptr<Module>> module = ParseModule(*text, o.parse);
  if (!module.ok()) return module.status();
  absl::StatusOr<std::vector<Literal>> args = Arguments(**module, o);
  if (!args.ok()) return args.status();
  std::vector<Literal> evaluated, native;
  if (o.backend != "cpu") {
    absl::StatusOr<Literal> result = Evaluate(**module, *args);
    if (!result.ok()) return absl::Status(result.status().code(), absl::StrCat("evaluator: ", result.status().message()));
    AppendLeaves(*result, &evaluated);
  }
  if (o.backend != "eval") {
    absl::StatusOr<std::vector<Literal>> run = RunOnCpu(**module, *args, o);
    if (!run.ok()) return absl::Status(run.status().code(), absl::StrCat("cpu: ", run.status().message()));
    native = *std::move(run);
  }
  const std::vector<Literal>& shown = o.backend == "cpu" ? native : evaluated;
  for (size_t i = 0; o.print && i < shown.size(); ++i) {
    std::printf("%s %s\n", shown[i].shape().ToString().c_str(), shown[i].ToString().c_str());
  }
  if (!o.save.empty()) TENON_RETURN_IF_ERROR(Save(o.save, shown));
  if (!o.expect.empty()) {
    absl::StatusOr<std::vector<Literal>> want = Expected(o.expect, **module);
    if (!want.ok()) return want.status();
    int off = 0;
    if (o.backend != "cpu") off += Report(evaluated, *want, "eval", o);
    if (o.backend != "eval") off += Report(native, *want, "cpu", o);
    return off;
  }
  return o.backend == "both" ? Report(native, evaluated, "cpu", o) : 0;
}

int Main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--help") return std::cout << kUsage, 0;
  }
  Options options;
  if (!ParseFlags(argc, argv, &options)) return 2;
  absl::StatusOr<int> off = absl::InternalError("");
  try {
    off = Run(options);
  } catch (const InternalError& e) {
    off = absl::InternalError(e.what());
  }
  if (!off.ok()) {
    std::cerr << options.file << ": " << std::string(off.status().message()) << "\n";
    return 3;
  }
  return *off == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tenon

int main(int argc, char** argv) { return tenon::Main(argc, argv); }
