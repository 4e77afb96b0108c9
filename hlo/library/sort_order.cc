#include "hlo/library/sort_order.h"

#include <array>

#include "absl/container/flat_hash_map.h"
#include "hlo/computation.h"

namespace tenon::library {
namespace {

using PT = PrimitiveType;

// What two keys can be to each other.
enum Case { kLess, kEqual, kGreater, kFirstNan, kSecondNan, kBothNan, kCases };
using Answers = std::array<bool, kCases>;

constexpr int64_t kMostInstructions = 64;  // beside the parameters

class Comparator {
 public:
  explicit Comparator(const Instruction& sort) : c_(*sort.to_apply()) {}

  std::optional<PlainOrder> Order() {
    if (c_.instruction_count() > kMostInstructions + static_cast<int64_t>(c_.parameters().size())) return std::nullopt;
    if (const std::optional<PlainOrder> total = TotalOrder()) return total;
    const Answers* answers = AnswersOf(c_.root());
    if (answers == nullptr || key_ < 0) return std::nullopt;
    const PT type = c_.parameter(2 * key_)->shape().element_type();
    if (!IsSortKey(type)) return std::nullopt;
    for (const bool descending : {false, true}) {
      for (const bool nan_first : {false, true}) {
        const Answers wanted = {!descending, false, descending, nan_first, !nan_first, false};
        const int cases = IsFloat(type) ? kCases : kFirstNan;
        if (std::equal(wanted.begin(), wanted.begin() + cases, answers->begin()))
          return PlainOrder{key_, {.descending = descending, .nan_first = IsFloat(type) && nan_first}};
      }
    }
    return std::nullopt;
  }

 private:
  // 0: the first of the two keys, 1: the second; sets or confirms which operand they are of. -1: something else.
  int Side(const Instruction* op) {
    if (op->opcode() != Opcode::kParameter || !op->shape().is_array()) return -1;
    const int64_t number = op->parameter_number();
    if (key_ >= 0 && key_ != number / 2) return -1;
    key_ = number / 2;
    return static_cast<int>(number % 2);
  }

  static bool IsTotal(const Instruction& compare) {
    return IsFloat(compare.operand(0)->shape().element_type()) &&
           compare.attrs().get_or<std::string>(Attr::kComparisonType, "") == "TOTALORDER";
  }

  std::optional<PlainOrder> TotalOrder() {
    const Instruction& root = *c_.root();
    if (root.opcode() != Opcode::kCompare || !IsTotal(root) || !IsSortKey(root.operand(0)->shape().element_type())) return std::nullopt;
    const int left = Side(root.operand(0)), right = Side(root.operand(1));
    if (left < 0 || right < 0 || left == right) return std::nullopt;
    const std::string_view direction = root.comparison_direction();
    if (direction != "LT" && direction != "GT") return std::nullopt;
    return PlainOrder{key_, {.descending = (direction == "GT") == (left == 0), .total = true}};
  }

  // nullptr: not understood.
  const Answers* AnswersOf(const Instruction* root) {
    for (const Instruction* op : c_.PostOrder()) {
      Answers answers;
      if (Answer(*op, &answers)) known_[op] = answers;
    }
    return Known(root);
  }

  const Answers* Known(const Instruction* op) const {
    auto it = known_.find(op);
    return it == known_.end() ? nullptr : &it->second;
  }

  bool Answer(const Instruction& op, Answers* answers) {
    if (!op.shape().is_array() || op.shape().element_type() != PT::kPred || op.opcode() == Opcode::kParameter) return false;
    if (op.opcode() == Opcode::kConstant) {
      answers->fill(op.literal().GetAsInt64(0) != 0);
      return true;
    }
    if (op.opcode() == Opcode::kCompare) return Compare(op, answers);
    std::array<const Answers*, 3> in = {};
    if (op.operand_count() > 3) return false;
    for (int64_t k = 0; k < op.operand_count(); ++k) {
      if ((in[static_cast<size_t>(k)] = Known(op.operand(k))) == nullptr) return false;
    }
    for (int c = 0; c < kCases; ++c) {
      auto of = [&](int k) { return (*in[static_cast<size_t>(k)])[static_cast<size_t>(c)]; };
      bool& answer = (*answers)[static_cast<size_t>(c)];
      switch (op.opcode()) {
        case Opcode::kAnd: answer = of(0) && of(1); break;
        case Opcode::kOr: answer = of(0) || of(1); break;
        case Opcode::kXor: answer = of(0) != of(1); break;
        case Opcode::kNot: answer = !of(0); break;
        case Opcode::kSelect: answer = of(0) ? of(1) : of(2); break;
        default: return false;
      }
    }
    return true;
  }

  // Of the two keys, or of one with itself.
  bool Compare(const Instruction& op, Answers* answers) {
    if (IsTotal(op)) return false;
    const int left = Side(op.operand(0)), right = Side(op.operand(1));
    if (left < 0 || right < 0) return false;
    const std::string_view d = op.comparison_direction();
    for (int c = 0; c < kCases; ++c) {
      const bool first_nan = c == kFirstNan || c == kBothNan, second_nan = c == kSecondNan || c == kBothNan;
      auto nan = [&](int side) { return side == 0 ? first_nan : second_nan; };
      int relation = left == right || c == kEqual ? 0 : c == kLess ? -1 : 1;  // of the first to the second
      if (left == 1 && right == 0) relation = -relation;
      const bool unordered = nan(left) || nan(right);
      bool& answer = (*answers)[static_cast<size_t>(c)];
      if (d == "EQ") answer = !unordered && relation == 0;
      else if (d == "NE") answer = unordered || relation != 0;
      else if (d == "LT") answer = !unordered && relation < 0;
      else if (d == "GT") answer = !unordered && relation > 0;
      else if (d == "LE") answer = !unordered && relation <= 0;
      else if (d == "GE") answer = !unordered && relation >= 0;
      else return false;
    }
    return true;
  }

  const Computation& c_;
  int64_t key_ = -1;
  absl::flat_hash_map<const Instruction*, Answers> known_;
};

}  // namespace

bool IsSortKey(PT type) {
  switch (type) {
    case PT::kPred:
    case PT::kS8:
    case PT::kS16:
    case PT::kS32:
    case PT::kS64:
    case PT::kU8:
    case PT::kU16:
    case PT::kU32:
    case PT::kU64:
    case PT::kF16:
    case PT::kBF16:
    case PT::kF32:
    case PT::kF64: return true;
    default: return false;
  }
}

KeyKind KeyKindOf(PT type) {
  if (IsFloat(type)) return KeyKind::kFloat;
  return type != PT::kPred && IsSigned(type) ? KeyKind::kSigned : KeyKind::kUnsigned;
}

uint64_t InfinityBits(PT type) {
  switch (type) {
    case PT::kF16: return 0x7c00;
    case PT::kBF16: return 0x7f80;
    case PT::kF32: return 0x7f800000;
    case PT::kF64: return 0x7ff0000000000000;
    default: return 0;
  }
}

std::optional<PlainOrder> PlainOrderOf(const Instruction& sort) { return Comparator(sort).Order(); }

}  // namespace tenon::library
