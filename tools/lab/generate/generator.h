// What the rows of the generator share. Internal to tools/lab.
//
// A Scope is one computation while it is being built: the arrays available in it, and ways to pick one, or to make one, of a wanted
// type and shape. Every value carries what is known of it on every backend:
//   exact   all backends have the same bits (NaN payloads aside)
//   small   a float array of integers of at most this magnitude; sums and products of such are exact while they fit
//   moved   NaNs have the bits of an input or constant: only then may bits or total order be looked at
//
// Sizes are Dims: numbers, and in modules with symbols expressions of these. A row that needs a number asks for what a size is at least
// (Least: no assignment of sizes makes it less, so slices and windows of that size fit), or at most in the runs that follow (Most: how
// much is computed, what counts stay exact). What a row may not rely on is refused by Try.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "hlo/builder.h"
#include "hlo/sizes.h"
#include "hlo/tolerance.h"
#include "tools/lab/generate/random_inputs.h"
#include "tools/lab/generate/random_module.h"

namespace tenon::lab {

inline constexpr double kNotSmall = std::numeric_limits<double>::infinity();

struct Value {
  Instruction* op = nullptr;
  bool exact = true;
  double small = kNotSmall;
  bool moved = false;

  PrimitiveType type() const { return op->shape().element_type(); }
  int64_t rank() const { return op->shape().rank(); }
  std::vector<Dim> dims() const { return {op->shape().dims().begin(), op->shape().dims().end()}; }
  Dim dim(int64_t i) const { return op->shape().dim(i); }
};

class Scope;
// Adds at least one instruction of the opcode. False: not possible here.
using MakeRow = bool (*)(Scope&, Opcode);
struct Row {
  Opcode opcode;
  MakeRow make;
};
absl::Span<const Row> ElementwiseRows();
absl::Span<const Row> MovementRows();
absl::Span<const Row> ReductionRows();
absl::Span<const Row> ContractionRows();
absl::Span<const Row> IndexingRows();
absl::Span<const Row> ControlRows();
absl::Span<const Row> RandomRows();
absl::Span<const Row> LinalgRows();
absl::Span<const Row> CollectiveRows();
std::vector<Row> AllRows();
// What programs do in several instructions: no rows of the menu, but put between them. For the entry only.
absl::Span<const Row> Idioms();

// What all computations of one module share.
struct Generation {
  Module* module;
  GeneratorOptions options;
  Random random;
  std::vector<Row> menu;             // this module's part of the table
  std::vector<PrimitiveType> types;  // its favourite element types
  std::vector<Dim> sizes;            // and dimensions
  std::vector<Dim> symbols;          // none: a module of numbers
  std::vector<Sizes> probes;         // of the symbols: some of the sizes that runs will bring, large ones among them
  int64_t budget = 0;                // rows that nested computations may still apply
  int64_t runs = 1;                  // how often the computation being built runs, loops around it counted
  int64_t layout_every = 24;         // one result in so many has a layout of its own
};

using TypePredicate = std::function<bool(PrimitiveType)>;

class Scope {
 public:
  Scope(Generation& g, Computation* computation, int depth) : g_(g), b_(computation), depth_(depth) {}

  Generation& g() { return g_; }
  Random& random() { return g_.random; }
  Builder& b() { return b_; }
  Module* module() { return g_.module; }
  int depth() const { return depth_; }
  bool is_entry() const { return depth_ == 0; }
  const std::vector<Value>& values() const { return values_; }

  // Applies `rows` rows of the menu.
  void Grow(int64_t rows);

  // Registers an array.
  Value Add(Instruction* op, bool exact = true, double small = kNotSmall, bool moved = false);
  // Registers with what moving `from` keeps.
  Value Moved(Instruction* op, const Value& from) { return Add(op, from.exact, from.small, from.moved); }
  // Makes the instruction if inference accepts it for all sizes and its arrays aren't too large; nullptr otherwise. Not registered.
  Instruction* Try(Opcode opcode, absl::Span<Instruction* const> operands, Attributes attrs = {},
                   std::optional<Shape> declared = std::nullopt);

  // Values that exist, newer ones rather. Never empty-handed: makes a leaf if nothing fits.
  Value Any();
  Value Exact();
  std::optional<Value> Find(const std::function<bool(const Value&)>& fits);
  // An exact array of a type that fits, converted to one if none does.
  Value OfType(const TypePredicate& fits);
  Value OfType(PrimitiveType type) { return OfType([type](PrimitiveType t) { return t == type; }); }
  // The same for rank or any property of the shape; makes a leaf of a random shape that fits.
  Value OfRank(int64_t low, int64_t high, const TypePredicate& fits);
  // An exact array of this type and dims, made from others by convert, broadcast, reshape, slice, pad, or new.
  Value Shaped(PrimitiveType type, const std::vector<Dim>& dims);
  Value Scalar(PrimitiveType type) { return Shaped(type, {}); }
  // A parameter (entry), constant or iota.
  Value Leaf(PrimitiveType type, const std::vector<Dim>& dims);
  Value RandomLeaf();
  Value Constant(PrimitiveType type, const std::vector<Dim>& dims);
  // `x` before it becomes a half type: mostly brought to where that does not overflow, since with excess precision either is right.
  Instruction* WithinHalf(Instruction* x, PrimitiveType half);
  // Integers of at most 4, as floats: exact to sum up.
  Value Small(const Value& x);
  // x with NaNs replaced by 1, unless their bits are defined.
  Value WithDefinedNans(const Value& x);
  // Small integers, and not all the same along any dimension: what statistics are taken of. x's type and dims.
  Value Spread(const Value& x);

  PrimitiveType Type(const TypePredicate& fits);
  PrimitiveType Type() { return Type([](PrimitiveType) { return true; }); }
  std::vector<Dim> Dims(int64_t low_rank = 0, int64_t high_rank = 4);
  Dim Size() { return random().Pick(g_.sizes); }
  // The number; in modules with symbols half of the time one of their sizes, of at least `least`.
  Dim SizeOr(int64_t number, int64_t least = 0);
  bool Fits(absl::Span<const Dim> dims) const;
  // For a row whose op the backend has no code for with symbols here: true, and the row gives up, but now and then, so that what is
  // refused is seen to be refused by name, and few modules for it.
  bool WouldBeRefused(absl::Span<const Dim> dims);
  static int64_t Least(Dim d) { return d.is_constant() ? d.constant() : std::max<int64_t>(0, LowerBound(d)); }
  double Most(Dim d) const;
  double Most(absl::Span<const Dim> dims) const;  // elements
  // Of 10^4 elements and more. There rows leave out what makes whole arrays that nobody can judge.
  bool is_large() const { return g_.options.max_elements > 1 << 13; }
  // Whether the evaluator can do so many steps in a second or so.
  static bool Affordable(double steps) { return steps <= 2e7; }

 private:
  Instruction* Resized(Instruction* x, const std::vector<Dim>& dims);

  Generation& g_;
  Builder b_;
  int depth_;
  std::vector<Value> values_;
};

// While it lives, what is built runs `times` times as often.
class Repeated {
 public:
  Repeated(Scope& s, int64_t times) : g_(s.g()), before_(g_.runs) { g_.runs *= times; }
  ~Repeated() { g_.runs = before_; }
  Repeated(const Repeated&) = delete;

 private:
  Generation& g_;
  int64_t before_;
};
inline constexpr int64_t kMaxRuns = 100;  // the evaluator is slow

// Largest integer up to which every integer is a value of the type; 0 for types that aren't floats.
double ExactIntegers(PrimitiveType type);
Attributes With(Attr attr, AttrValue value);
std::vector<int64_t> Subset(Random& random, int64_t n, int64_t count);  // ascending
std::vector<int64_t> Shuffled(Random& random, int64_t n);
Instruction* Part(Scope& s, Instruction* tuple, int64_t index);

// Halves beyond it are rounded, or not with excess precision: nobody could say what an index made of such a one is.
inline bool CountsTo(PrimitiveType t, double most) { return !IsFloat(t) || BitWidth(t) != 16 || most <= 2 / EpsilonOf(t); }


// A region of scalars that combines two values of each type and is associative and commutative.
struct Combiner {
  Computation* computation = nullptr;
  bool sums = false;  // adds or multiplies floats: sums are exact on small integers, products never
  Opcode opcode = Opcode::kAdd;
};
Combiner RandomCombiner(Scope& s, PrimitiveType type);
// One that is neither, of a few ops: both sides go by the evaluator's order. Not of pred or complex numbers, and not of halves, whose
// rounding inside a region is a matter of excess precision.
Computation* OrderedCombiner(Scope& s, PrimitiveType type);
inline bool HasOrderedCombiner(PrimitiveType t) {
  return IsIntegral(t) ? BitWidth(t) >= 8 : t == PrimitiveType::kF32 || t == PrimitiveType::kF64;
}
// The reducer of (value, index) pairs that finds the largest.
Computation* ArgMax(Scope& s, PrimitiveType type, PrimitiveType index);
// A comparator over scalars of the types (two of each, interleaved as sort wants) that is a strict weak order. `total`: only
// equal elements tie, and NaNs' bits are looked at.
struct Comparator {
  Computation* computation;
  bool total = false;
};
Comparator RandomComparator(Scope& s, const std::vector<PrimitiveType>& types);

}  // namespace tenon::lab
