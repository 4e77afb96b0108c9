// Symbols become numbers, or get smaller sizes.
#include "hlo/sizes.h"
#include "tools/lab/reduce/reduce_dims.h"
#include "tools/lab/reduce/reduce_session.h"

namespace tenon::lab {
namespace {

// The arguments cut to the shapes that the parameters have at these sizes; nullopt: the module has none.
std::optional<std::vector<Literal>> ArgumentsAt(const Case& c, const Sizes& sizes, bool trailing) {
  const absl::StatusOr<std::unique_ptr<Module>> numbers = WithSizes(*c.module, sizes);
  if (!numbers.ok()) return std::nullopt;
  std::vector<Literal> arguments;
  for (const Instruction* p : (*numbers)->entry()->parameters()) {
    arguments.push_back(CutTo(c.arguments[static_cast<size_t>(p->parameter_number())], p->shape(), trailing));
  }
  return arguments;
}

bool Shrink(Session& s, const std::string& symbol) {
  const absl::StatusOr<Sizes> now = SizesOfArguments(*s.best().module, s.best().arguments);
  if (!now.ok() || !now->contains(symbol)) return false;
  const int64_t size = now->at(symbol);
  for (int64_t smaller : {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{3}, int64_t{4}, int64_t{5}, size / 8, size / 4, size / 2, size - 1}) {
    if (smaller < 0 || smaller >= size) continue;
    Sizes sizes = *now;
    sizes[symbol] = smaller;
    for (bool trailing : {false, true}) {
      const bool done = s.TryEdit("size", [&](Case& c) {
        std::optional<std::vector<Literal>> arguments = ArgumentsAt(c, sizes, trailing);
        if (!arguments.has_value()) return false;
        c.arguments = *std::move(arguments);
        return true;
      });
      if (done) return true;
    }
  }
  return false;
}

}  // namespace

bool ReduceSizes(Session& s) {
  bool any = false;
  for (Dim symbol : SymbolsOf(*s.best().module)) {
    const std::string name = symbol.expr()->symbol;
    any |= s.TryEdit("number", [&](Case& c) {
      const absl::StatusOr<Sizes> sizes = SizesOfArguments(*c.module, c.arguments);
      if (!sizes.ok() || !sizes->contains(name)) return false;
      PutSizes(*c.module, {{name, sizes->at(name)}});
      return true;
    });
    any |= Shrink(s, name);
  }
  return any;
}

}  // namespace tenon::lab
