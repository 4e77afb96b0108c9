#include "hlo/precision.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "hlo/numeric_types.h"
#include "hlo/text/lexer.h"

namespace tenon {
namespace {

constexpr Precision kAsIs{0, 0}, kF16{5, 10}, kBF16{8, 7}, kTF32{8, 10}, kF32{8, 23};

struct AlgorithmRow {
  std::string_view name;
  Precision operands;
};

// Those that split an operand into several narrow parts (x3, x6, x9) stand for products as good as f32's, so nothing is rounded.
constexpr AlgorithmRow kAlgorithms[] = {
    {"dot_unset", kAsIs},
    {"dot_any_f8_any_f8_f32", kAsIs},
    {"dot_any_f8_any_f8_f32_fast_accum", kAsIs},
    {"dot_any_f8_any_f8_any", kAsIs},
    {"dot_any_f8_any_f8_any_fast_accum", kAsIs},
    {"dot_f16_f16_f16", kF16},
    {"dot_f16_f16_f32", kF16},
    {"dot_bf16_bf16_bf16", kBF16},
    {"dot_bf16_bf16_f32", kBF16},
    {"dot_bf16_bf16_f32_x3", kAsIs},
    {"dot_bf16_bf16_f32_x6", kAsIs},
    {"dot_bf16_bf16_f32_x9", kAsIs},
    {"dot_tf32_tf32_f32", kTF32},
    {"dot_tf32_tf32_f32_x3", kAsIs},
    {"dot_f32_f32_f32", kF32},
    {"dot_f64_f64_f64", kAsIs},
};

const AlgorithmRow* RowOf(std::string_view name) {
  const auto* row = std::find_if(std::begin(kAlgorithms), std::end(kAlgorithms), [&](const AlgorithmRow& r) { return r.name == name; });
  return row == std::end(kAlgorithms) ? nullptr : row;
}

// The precision of a float type that reduce-precision takes; nullopt: fewer bits than any algorithm's, or no such type.
std::optional<Precision> PrecisionOf(PrimitiveType type) {
  switch (type) {
    case PrimitiveType::kF16: return kF16;
    case PrimitiveType::kBF16: return kBF16;
    case PrimitiveType::kF32: return kF32;
    case PrimitiveType::kF64: return Precision{11, 52};
    default: return std::nullopt;
  }
}

// Units in the last place that an elementwise result may be off: docs/accuracy.md, rounded up, complex parts included.
constexpr int64_t kUlps = 1;

absl::Status Refused(const Instruction& op, std::string_view attribute, std::string_view value) {
  auto abs = [](std::string_view s) { return absl::string_view(s.data(), s.size()); };
  return absl::UnimplementedError(
      absl::StrCat(abs(OpcodeName(op.opcode())), " ", op.name(), ": no arithmetic here gives ", abs(attribute), "=", abs(value)));
}

bool Number(Lexer* lex, double* out) {
  lex->SkipSpace();
  const std::string_view text = lex->NumberText();
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return !text.empty() && error == std::errc() && end == text.data() + text.size() && *out >= 0;
}

}  // namespace

bool IsDotAlgorithm(std::string_view name) { return RowOf(name) != nullptr; }

std::optional<Precision> OperandPrecision(const Instruction& contraction, PrimitiveType from) {
  const AlgorithmRow* row = RowOf(contraction.attrs().get_or<std::string>(Attr::kAlgorithm, "dot_unset"));
  const std::optional<Precision> has = PrecisionOf(from);
  if (row == nullptr || row->operands.exponent_bits == 0 || !has.has_value()) return std::nullopt;
  const Precision& wanted = row->operands;
  if (has->exponent_bits <= wanted.exponent_bits && has->mantissa_bits <= wanted.mantissa_bits) return std::nullopt;
  return wanted;
}

absl::StatusOr<ResultAccuracy> ParseResultAccuracy(std::string_view text) {
  Lexer lex(text);
  ResultAccuracy out;
  const auto wrong = [&] {
    return absl::InvalidArgumentError(absl::StrCat("wanted {mode=default}, {mode=highest} or {tolerance={atol=a,rtol=r,ulps=u}}, got ",
                                                   absl::string_view(text.data(), text.size())));
  };
  if (!lex.Try('{')) return wrong();
  if (lex.TryWord("mode")) {
    if (!lex.Try('=') || !(lex.TryWord("default") || lex.TryWord("highest"))) return wrong();
  } else {
    if (!lex.TryWord("tolerance") || !lex.Try('=') || !lex.Try('{')) return wrong();
    out.tolerance = true;
    do {
      double value = 0;
      const std::string_view key = lex.Identifier();
      if (!lex.Try('=') || !Number(&lex, &value)) return wrong();
      if (key == "atol") out.atol = value;
      else if (key == "rtol") out.rtol = value;
      else if (key == "ulps" && value == std::floor(value) && value < 1e15) out.ulps = static_cast<int64_t>(value);
      else return wrong();
    } while (lex.Try(','));
    if (!lex.Try('}')) return wrong();
  }
  if (!lex.Try('}') || !lex.AtEnd()) return wrong();
  return out;
}

absl::Status CheckPrecision(const Instruction& op) {
  if (op.attrs().has(Attr::kOperandPrecision)) {
    const auto& text = op.attrs().get<std::string>(Attr::kOperandPrecision);
    if (absl::StrContains(text, "packed_nibble")) return Refused(op, "operand_precision", text);
  }
  if (op.attrs().has(Attr::kResultAccuracy)) {
    const auto& text = op.attrs().get<std::string>(Attr::kResultAccuracy);
    TENON_ASSIGN_OR_RETURN(const ResultAccuracy wanted, ParseResultAccuracy(text));
    const std::optional<Precision> has = PrecisionOf(ComplexComponent(op.shape().element_type()));
    const double unit = std::exp2(-(has.has_value() ? has->mantissa_bits : 2));
    // An absolute tolerance alone says nothing for large results.
    const bool met = !wanted.tolerance || wanted.ulps >= kUlps || wanted.rtol >= static_cast<double>(kUlps) * unit;
    if (!met) return Refused(op, "result_accuracy", text);
  }
  return absl::OkStatus();
}

}  // namespace tenon
