// The rules behind error_bound.h, by family. Internal to tools/lab.
#pragma once

#include <optional>
#include <vector>

#include "hlo/eval/internal.h"
#include "hlo/module.h"

namespace tenon::lab {

// What is known of one array of a right backend. No error: exact. `moved`: its NaNs have the bits of an argument or constant.
// An error of kZeroSign on a zero says that only its sign is open.
struct Known {
  std::optional<std::vector<double>> error;  // per element, row-major
  bool moved = false;
  bool open_size = false;  // how long its dynamic dimensions are is not known, and so nothing of it

  double At(int64_t i) const { return error.has_value() ? (*error)[i] : 0; }
  bool exact() const { return !error.has_value(); }
};
inline constexpr double kZeroSign = 5e-324;
inline constexpr double kUnknown = std::numeric_limits<double>::infinity();

// A value of the run, tuples included, with what is known of each leaf.
struct Shadow {
  Literal value;
  std::vector<Known> leaves;

  const Known& known() const { return leaves[0]; }
  bool exact() const;
};
using Shadows = absl::Span<const Shadow* const>;

Known Unknown(const Literal& value);
// Exact if all are zero.
Known FromErrors(std::vector<double> errors, bool moved = false);
// Next larger value minus |x| in the type.
double Spacing(PrimitiveType type, double x);
double LargestFinite(PrimitiveType type);
// |x| as f64; |re| + |im| of a complex one. 0 of what isn't finite.
Literal Magnitudes(const Literal& x);
// The power of two that each element is a multiple of; infinity for 0.
Literal Quanta(const Literal& x);
double SmallestQuantum(const Literal& x);
// Result of `i` with every float type replaced by f64 on these operands. Regions are replaced by `region`, if given.
absl::StatusOr<Literal> InDouble(const Instruction& i, absl::Span<const Literal> operands, std::optional<Opcode> region = std::nullopt);
Literal AsDouble(const Shape& shape, std::vector<double> values);
// Each rounded to the type, by the evaluator's conversion.
std::vector<double> RoundedTo(PrimitiveType type, const std::vector<double>& x);
bool IsHalfType(PrimitiveType type);  // f16, bf16

// Rules. Each gives one Known per leaf of `value`. Those without a status cannot fail.
bool IsTranscendental(Opcode opcode);
// `excess`: half values may keep what f32 holds.
absl::StatusOr<Known> ElementwiseRule(const Instruction& i, Shadows operands, const Literal& value, bool excess);
// Reductions and scatters by a region; contractions. Float sums in `value` are replaced by what they are in f64, rounded once.
absl::StatusOr<std::vector<Known>> RegionRule(const Instruction& i, Shadows operands, bool excess, Literal* value);
absl::StatusOr<Known> ContractionRule(const Instruction& i, Shadows operands, bool excess, Literal* value);
// fft, cholesky, triangular-solve, batch-norm-*.
absl::StatusOr<std::vector<Known>> LinalgRule(const Instruction& i, Shadows operands, const Literal& value);

// Whether a computation (and what it calls) has an instruction whose result is not always exact.
bool HasInexact(const Computation& computation, bool excess);
bool LooksAtNanBits(const Computation& computation);
bool HasNan(const Literal& x);

}  // namespace tenon::lab
