// ragged-all-to-all of one replica: (input, output, input_offsets, send_sizes, output_offsets, recv_sizes), rows of the major
// dimension, from this replica to itself.
#include <cstring>

#include "hlo/library/call.h"
#include "hlo/literal.h"

namespace tenon::library {
namespace {

absl::Status Check(const Signature& s) {
  if (s.operands.size() != 6 || s.results.size() != 1) return Invalid(s, "wanted six arrays and one");
  const Shape &input = s.operands[0], &output = s.operands[1];
  if (input.rank() == 0 || input.rank() != output.rank()) return Invalid(s, "wanted an input with a ragged dimension");
  bool fits = input.element_type() == output.element_type() && Shape::Compatible(output, s.results[0]);
  for (int64_t d = 1; d < input.rank(); ++d) fits = fits && input.dim(d) == output.dim(d);
  for (int64_t k = 2; k < 6; ++k) {
    fits = fits && IsIntegral(s.operands[k].element_type()) &&
           s.operands[k].num_elements_constant() == s.operands[2].num_elements_constant();
  }
  return fits ? absl::OkStatus() : Invalid(s, "wanted rows of one shape, and offsets and sizes of one length");
}

absl::Status Run(const Call& call) {
  const Signature& s = call.signature;
  const Shape &input = s.operands[0], &output = s.operands[1];
  int64_t row = ByteWidth(input.element_type());
  for (int64_t d = 1; d < input.rank(); ++d) row *= input.constant_dim(d);
  const int64_t input_rows = input.constant_dim(0), output_rows = output.constant_dim(0);
  auto number = [&](int k, int64_t at) { return Literal(s.operands[k], nullptr, call.operands[k]).GetAsInt64(at); };
  char* to_row = static_cast<char*>(call.results[0]);
  if (output_rows * row > 0) std::memcpy(to_row, call.operands[1], output_rows * row);
  for (int64_t k = 0; k < s.operands[2].num_elements_constant(); ++k) {
    const int64_t from = number(2, k), count = number(3, k), to = number(4, k);
    if (count != number(5, k)) return Invalid(s, "send and receive sizes of one replica differ");
    if (from < 0 || to < 0 || count < 0 || from > input_rows - count || to > output_rows - count) {
      return Invalid(s, "offsets and sizes reach outside of the operands");
    }
    if (count > 0) std::memcpy(to_row + to * row, static_cast<const char*>(call.operands[0]) + from * row, count * row);
  }
  return absl::OkStatus();
}

constexpr Function kFunctions[] = {{"ragged-all-to-all", Check, nullptr, Run}};

}  // namespace

absl::Span<const Function> RaggedFunctions() { return kFunctions; }

}  // namespace tenon::library
