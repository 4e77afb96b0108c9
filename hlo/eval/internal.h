// What the family files of the evaluator share: the context of a run, the handler table, index arithmetic.
#pragma once

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "hlo/eval/evaluator.h"
#include "hlo/instruction.h"
#include "hlo/library/call.h"

namespace tenon::eval {

struct Plan;  // a computation's order of evaluation

// One run. Not thread-safe; every Evaluate() has its own.
class Context {
 public:
  explicit Context(const EvalOptions& options);
  ~Context();

  const EvalOptions& options() const { return options_; }
  // Refuses what would exceed max_bytes.
  absl::Status Reserve(const Instruction& i);
  void Release(int64_t bytes) { live_bytes_ -= bytes; }
  absl::StatusOr<Literal> Call(const Computation& computation, absl::Span<const Literal> args);

  library::RunState library_state;

 private:
  absl::StatusOr<const Plan*> PlanOf(const Computation& computation);
  absl::StatusOr<Literal> Run(const Plan& plan, absl::Span<const Literal> args);
  absl::StatusOr<Literal> RunCut(const Instruction& i, absl::Span<const Literal> operands);

  const EvalOptions& options_;
  int depth_ = 0;
  int64_t live_bytes_ = 0;
  absl::flat_hash_map<const Computation*, std::unique_ptr<Plan>> plans_;
};

using Operands = absl::Span<const Literal>;
using Handler = absl::StatusOr<Literal> (*)(Context&, const Instruction&, Operands);
struct HandlerRow {
  Opcode opcode;
  Handler handler;
};

absl::Span<const HandlerRow> ElementwiseHandlers();
absl::Span<const HandlerRow> MovementHandlers();
absl::Span<const HandlerRow> ReductionHandlers();
absl::Span<const HandlerRow> ContractionHandlers();
absl::Span<const HandlerRow> IndexingHandlers();
absl::Span<const HandlerRow> ControlHandlers();
absl::Span<const HandlerRow> LibraryHandlers();
absl::Span<const HandlerRow> CollectiveHandlers();

// nullptr: the opcode has no meaning on one device (send, infeed, ...).
Handler HandlerOf(Opcode opcode);

// A custom call of tenon's own (hlo/own_calls.h).
absl::StatusOr<Literal> PointwiseCall(Context& context, const Instruction& i, Operands operands);

// A call of hlo/library (library::IsLibraryCall).
absl::StatusOr<Literal> CallLibrary(Context& context, const Instruction& i, Operands operands);

// (values, positions) along the last dimension; NaN counts as greater than any number, the first of equals first.
Literal TopKOf(const Literal& x, int64_t k, bool largest, const Shape& result);

std::string Describe(const Instruction& i);  // "add x"
absl::Status Unimplemented(const Instruction& i, std::string_view what);
absl::Status Invalid(const Instruction& i, std::string_view what);

using Index = absl::InlinedVector<int64_t, 6>;

inline int64_t Product(absl::Span<const int64_t> dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}

// Row-major strides in elements.
inline Index StridesOf(absl::Span<const int64_t> dims) {
  Index strides(dims.size(), 1);
  for (int64_t i = static_cast<int64_t>(dims.size()) - 2; i >= 0; --i) {
    strides[i] = strides[i + 1] * dims[i + 1];
  }
  return strides;
}

inline int64_t Offset(absl::Span<const int64_t> index, absl::Span<const int64_t> strides) {
  int64_t offset = 0;
  for (size_t i = 0; i < index.size(); ++i) offset += index[i] * strides[i];
  return offset;
}

// Steps `index` through dims in row-major order; false after the last.
inline bool Next(absl::Span<const int64_t> dims, Index* index) {
  for (int64_t d = static_cast<int64_t>(dims.size()) - 1; d >= 0; --d) {
    if (++(*index)[d] < dims[d]) return true;
    (*index)[d] = 0;
  }
  return false;
}

// f(index) for every index of dims, row-major.
template <typename F>
void ForEachIndex(absl::Span<const int64_t> dims, F&& f) {
  if (Product(dims) == 0) return;
  Index index(dims.size(), 0);
  do {
    f(static_cast<const Index&>(index));
  } while (Next(dims, &index));
}

// Copies elements of `width` bytes between two strided arrays (strides in elements).
void CopyStrided(int64_t width, absl::Span<const int64_t> dims, const std::byte* from,
                 absl::Span<const int64_t> from_strides, std::byte* to,
                 absl::Span<const int64_t> to_strides);

inline bool Contains(absl::Span<const int64_t> list, int64_t value) {
  for (int64_t v : list) {
    if (v == value) return true;
  }
  return false;
}

}  // namespace tenon::eval
