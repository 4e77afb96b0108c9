#include "tools/lab/generate/random_module.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "hlo/verifier.h"
#include "tools/lab/generate/generator.h"
#include "tools/lab/generate/random_sizes.h"

namespace tenon::lab {
namespace {

constexpr std::string_view kFamilyNames[] = {"elementwise", "movement", "reduction", "contraction", "indexing",
                                             "control",     "random",   "linalg",    "collective"};

bool Names(const std::vector<std::string>& list, Opcode opcode) {
  const OpInfo& info = InfoOf(opcode);
  for (const std::string& name : list) {
    if (name == info.name || name == kFamilyNames[static_cast<int>(info.family)]) return true;
  }
  return false;
}

// How many of ten rows of a module come from each family, roughly: what is common in programs is common here.
int64_t Weight(Family family) {
  switch (family) {
    case Family::kElementwise: case Family::kMovement: return 3;
    case Family::kReduction: case Family::kIndexing: case Family::kContraction: case Family::kControl: return 3;
    default: return 1;
  }
}

std::vector<Row> Allowed(absl::Span<const Row> rows, const GeneratorOptions& options) {
  std::vector<Row> allowed;
  for (const Row& row : rows) {
    if (!options.only.empty() && !Names(options.only, row.opcode)) continue;
    // Sizes known when it runs only are compiled for then, as numbers: no program has both.
    if (options.symbols && (row.opcode == Opcode::kSetDimensionSize || row.opcode == Opcode::kDynamicReshape)) continue;
    if (!Names(options.without, row.opcode)) allowed.push_back(row);
  }
  return allowed;
}

std::vector<Row> Menu(const GeneratorOptions& options, Random& random) {
  const std::vector<Row> allowed = Allowed(AllRows(), options);
  TENON_CHECK(!allowed.empty(), "no opcode is left to draw from");
  // A random part: most modules know between 6 and 30 opcodes.
  const int64_t count = random.OneIn(6) ? static_cast<int64_t>(allowed.size()) : random.Between(6, 30);
  std::vector<Row> menu;
  for (int64_t i : Subset(random, allowed.size(), count)) {
    for (int64_t n = 0; n < Weight(InfoOf(allowed[i].opcode).family); ++n) menu.push_back(allowed[i]);
  }
  return menu;
}

std::vector<PrimitiveType> FavouriteTypes(const GeneratorOptions& options, Random& random) {
  if (!options.types.empty()) return options.types;
  std::vector<PrimitiveType> all;
#define TENON_TYPE(e, ...) \
  if (IsArrayType(PrimitiveType::e)) all.push_back(PrimitiveType::e);
#include "hlo/types.def"
  constexpr PrimitiveType kCommon[] = {PrimitiveType::kF32, PrimitiveType::kF32, PrimitiveType::kBF16, PrimitiveType::kF16,
                                       PrimitiveType::kF64, PrimitiveType::kS32, PrimitiveType::kS64, PrimitiveType::kPred,
                                       PrimitiveType::kU8,  PrimitiveType::kC64};
  std::vector<PrimitiveType> types;
  for (int64_t n = random.Between(1, 4); n > 0; --n) types.push_back(random.OneIn(2) ? random.Pick(kCommon) : random.Pick(all));
  return types;
}

std::vector<Dim> FavouriteSizes(const GeneratorOptions& options, Random& random) {
  if (options.max_elements > 1 << 13) {
    constexpr int64_t kLarge[] = {64, 100, 257, 1000, 1024, 4097, 16384, 65537, 1 << 19};
    std::vector<Dim> sizes;
    for (int64_t n = random.Between(2, 4); n > 0; --n) sizes.push_back(random.Pick(kLarge));
    return sizes;
  }
  constexpr int64_t kSizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 31, 33, 65, 100};
  std::vector<Dim> sizes;
  for (int64_t n = random.Between(2, 4); n > 0; --n) sizes.push_back(random.Pick(kSizes));
  if (random.OneIn(3)) sizes.push_back(1);
  if (random.OneIn(20)) sizes.push_back(0);
  return sizes;
}

// Symbols, each with a parameter that it is read from, and sizes: more symbols than numbers.
void AddSymbols(Scope& s) {
  Generation& g = s.g();
  g.symbols = RandomSymbols(g.module->dims(), g.random);
  g.probes = ProbesOf(g.symbols);
  for (Dim d : RandomExpressions(g.symbols, g.random)) g.sizes.push_back(d);
  for (int n = 0; n < 3; ++n) g.sizes.insert(g.sizes.end(), g.symbols.begin(), g.symbols.end());
  for (size_t k = 0; k < g.symbols.size(); ++k) {
    std::vector<Dim> dims = s.Dims(0, 2);
    dims.insert(dims.begin() + g.random.Below(static_cast<int64_t>(dims.size()) + 1), g.symbols[k]);
    if (!s.Fits(dims)) dims = {g.symbols[k]};
    Shape shape(s.Type(), dims);
    if (g.options.layouts && dims.size() > 1 && g.random.OneIn(4)) shape.set_layout(Shuffled(g.random, static_cast<int64_t>(dims.size())));
    s.Add(s.b().Parameter(static_cast<int64_t>(k), shape), true, kNotSmall, true);
  }
}

// The entry's rows, idioms between them in three modules of four.
void Fill(Scope& s) {
  const GeneratorOptions& options = s.g().options;
  const std::vector<Row> idioms = Allowed(Idioms(), options);
  int64_t rows = s.random().Between(std::max<int64_t>(1, options.size / 2), 3 * options.size / 2);
  for (int64_t left = idioms.empty() ? 0 : s.random().Between(0, 3); left > 0; --left) {
    const int64_t before = s.random().Between(0, rows);
    s.Grow(before);
    rows -= before;
    const Row& idiom = s.random().Pick(idioms);
    idiom.make(s, idiom.opcode);
  }
  s.Grow(rows);
}

// Every value that nobody uses is a result, else it would be dead; some others are, too, and some twice.
void SetRoot(Scope& s) {
  Random& random = s.random();
  std::vector<Value> results;
  for (const Value& v : s.values()) {
    const bool sink = v.op->user_count() == 0 && v.op->opcode() != Opcode::kParameter;
    if (sink || random.OneIn(24)) results.push_back(v);
  }
  if (results.empty()) results.push_back(s.Any());
  while (results.size() > 12) results.erase(results.begin() + random.Below(results.size()));
  std::vector<Instruction*> leaves;
  for (const Value& v : results) {
    Instruction* leaf = v.op;
    if (s.g().options.layouts && v.rank() > 1 && random.OneIn(s.g().layout_every / 4 + 1)) {
      leaf = s.b().Copy(leaf);
      leaf->mutable_shape().set_layout(Shuffled(random, v.rank()));
    }
    leaves.push_back(leaf);
  }
  Computation* c = s.b().computation();
  if (leaves.size() == 1 && !random.OneIn(3)) return c->set_root(leaves[0]);
  if (leaves.size() > 2 && random.OneIn(6)) {
    Instruction* inner = s.b().Tuple({leaves[0], leaves[1]});
    leaves.erase(leaves.begin(), leaves.begin() + 2);
    leaves.push_back(inner);
  }
  c->set_root(s.b().Tuple(leaves));
}

}  // namespace

std::unique_ptr<Module> RandomModule(uint64_t seed, const GeneratorOptions& options) {
  auto module = std::make_unique<Module>(absl::StrCat("fuzz_", seed));
  Generation g{.module = module.get(), .options = options, .random = Random(seed)};
  g.menu = Menu(options, g.random);
  g.types = FavouriteTypes(options, g.random);
  g.sizes = FavouriteSizes(options, g.random);
  if (g.random.OneIn(5)) g.layout_every = 4;
  g.budget = 3 * options.size;
  Computation* entry = module->AddComputation("main");
  module->set_entry(entry);
  Scope s(g, entry, 0);
  if (options.symbols) AddSymbols(s);
  for (int64_t n = g.random.Between(1, 3); n > 0; --n) s.RandomLeaf();
  Fill(s);
  SetRoot(s);
  module->RemoveUnreachableComputations();
  const absl::Status status = Verify(*module);
  TENON_CHECK(status.ok(), absl::StrCat("seed ", seed, ": ", std::string(status.message()), "\n", module->ToString()));
  return module;
}

std::vector<Opcode> GeneratedOpcodes() {
  std::vector<Opcode> opcodes;
  for (const Row& row : AllRows()) {
    if (opcodes.empty() || opcodes.back() != row.opcode) opcodes.push_back(row.opcode);
  }
  return opcodes;
}

std::string UnknownNames(const GeneratorOptions& options) {
  const std::vector<Opcode> opcodes = GeneratedOpcodes();
  for (const auto* list : {&options.only, &options.without}) {
    for (const std::string& name : *list) {
      bool known = false;
      for (Opcode op : opcodes) known = known || Names({name}, op);
      if (!known) return absl::StrCat("\"", name, "\" is neither a family nor an opcode that can be generated");
    }
  }
  return "";
}

}  // namespace tenon::lab
