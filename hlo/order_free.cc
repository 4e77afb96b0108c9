// IsOrderFree, by trial: a body of compares, selects, extrema and logic on predicates knows of its
// arguments only how they compare, and what can occur among three elements is tried.
#include "hlo/order_free.h"

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "hlo/instruction.h"

namespace tenon {
namespace {

constexpr int kTrials = 1500;

// Runs the body on numbers; values in one array, parameters first.
class Trial {
 public:
  // False if there is an op that is more than choosing.
  bool Prepare(const Computation& body) {
    components_ = static_cast<int64_t>(body.parameters().size()) / 2;
    absl::flat_hash_map<const Instruction*, int> slot;
    for (const Instruction* p : body.parameters()) {
      if (!p->shape().is_scalar()) return false;
      slot[p] = static_cast<int>(values_.size());
      values_.push_back(0);
    }
    for (const Instruction* op : body.PostOrder()) {
      if (op->opcode() == Opcode::kParameter) continue;
      if (op->opcode() == Opcode::kTuple && op == body.root()) continue;
      Step step;
      if (!Known(*op, &step)) return false;
      for (int64_t k = 0; k < op->operand_count(); ++k)
        step.args[static_cast<size_t>(k)] = slot.at(op->operand(k));
      step.result = slot[op] = static_cast<int>(values_.size());
      values_.push_back(0);
      steps_.push_back(step);
    }
    const Instruction* root = body.root();
    if (root->opcode() == Opcode::kTuple) {
      for (const Instruction* o : root->operands()) results_.push_back(slot.at(o));
    } else {
      results_.push_back(slot.at(root));
    }
    return static_cast<int64_t>(results_.size()) == components_;
  }

  using Element = std::vector<double>;
  Element Apply(const Element& a, const Element& b) {
    for (size_t k = 0; k < a.size(); ++k) {
      values_[k] = a[k];
      values_[a.size() + k] = b[k];
    }
    for (const Step& s : steps_) values_[static_cast<size_t>(s.result)] = Run(s);
    Element r;
    for (int v : results_) r.push_back(values_[static_cast<size_t>(v)]);
    return r;
  }

  static bool Same(const Element& a, const Element& b) {
    for (size_t k = 0; k < a.size(); ++k) {
      if (a[k] != b[k] && !(std::isnan(a[k]) && std::isnan(b[k]))) return false;
    }
    return true;
  }

 private:
  struct Step {
    Opcode opcode;
    char direction = 0;  // of a compare: E N L l G g
    bool total = false;
    std::array<int, 3> args{};
    int result = 0;
  };

  static bool Known(const Instruction& op, Step* step) {
    step->opcode = op.opcode();
    if (!op.shape().is_scalar()) return false;
    const bool pred = op.shape().element_type() == PrimitiveType::kPred;
    switch (op.opcode()) {
      case Opcode::kCompare: {
        const std::string& d = op.comparison_direction();
        step->direction = d == "LE" ? 'l' : d == "GE" ? 'g' : d[0];
        step->total = op.attrs().get_or<std::string>(Attr::kComparisonType, "") == "TOTALORDER";
        return !IsComplex(op.operand(0)->shape().element_type());
      }
      case Opcode::kSelect:
        return true;
      case Opcode::kMaximum:
      case Opcode::kMinimum:
        return !IsComplex(op.shape().element_type());
      case Opcode::kAnd:
      case Opcode::kOr:
      case Opcode::kXor:
      case Opcode::kNot:
        return pred;
      default:
        return false;
    }
  }

  double Run(const Step& s) const {
    auto arg = [&](size_t k) { return values_[static_cast<size_t>(s.args[k])]; };
    const double x = arg(0), y = arg(1);
    switch (s.opcode) {
      case Opcode::kCompare:
        return Compare(s, x, y) ? 1 : 0;
      case Opcode::kSelect:
        return x != 0 ? y : arg(2);
      case Opcode::kMaximum:
        return std::isnan(x) || std::isnan(y) ? NAN : std::max(x, y);
      case Opcode::kMinimum:
        return std::isnan(x) || std::isnan(y) ? NAN : std::min(x, y);
      case Opcode::kAnd:
        return x != 0 && y != 0 ? 1 : 0;
      case Opcode::kOr:
        return x != 0 || y != 0 ? 1 : 0;
      case Opcode::kXor:
        return (x != 0) != (y != 0) ? 1 : 0;
      default:
        return x == 0 ? 1 : 0;
    }
  }

  static bool Compare(const Step& s, double x, double y) {
    if (s.total) {  // NaN above everything
      if (std::isnan(x)) x = 1e300;
      if (std::isnan(y)) y = 1e300;
    }
    switch (s.direction) {
      case 'E':
        return x == y;
      case 'N':
        return x != y;
      case 'L':
        return x < y;
      case 'l':
        return x <= y;
      case 'G':
        return x > y;
      default:
        return x >= y;
    }
  }

  int64_t components_ = 0;
  std::vector<double> values_;
  std::vector<Step> steps_;
  std::vector<int> results_;
};

}  // namespace

bool IsOrderFree(const Computation& body) {
  if (static_cast<int64_t>(body.parameters().size()) % 2 != 0) return false;
  Trial trial;
  if (!trial.Prepare(body)) return false;
  uint64_t state = 1;
  auto random = [&state](uint64_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % n;
  };
  auto element = [&] {
    Trial::Element e;
    for (int64_t k = 0; k < static_cast<int64_t>(body.parameters().size()) / 2; ++k) {
      const PrimitiveType type = body.parameter(k)->shape().element_type();
      const uint64_t pick = random(IsFloat(type) ? 7 : type == PrimitiveType::kPred ? 2 : 5);
      e.push_back(pick == 6 ? NAN : pick == 5 ? std::numeric_limits<double>::infinity()
                                              : static_cast<double>(pick));
    }
    return e;
  };
  for (int i = 0; i < kTrials; ++i) {
    const Trial::Element a = element(), b = element(), c = element();
    const Trial::Element ab = trial.Apply(a, b);
    if (!trial.Same(ab, trial.Apply(b, a)) || !trial.Same(a, trial.Apply(a, a)) ||
        !trial.Same(trial.Apply(ab, c), trial.Apply(a, trial.Apply(b, c)))) {
      return false;
    }
  }
  return true;
}

std::optional<Opcode> SimpleOp(const Computation& body) {
  const Instruction* root = body.root();
  if (body.instruction_count() != 3 || root->operand_count() != 2) return std::nullopt;
  if (root->operand(0)->opcode() != Opcode::kParameter || root->operand(1)->opcode() != Opcode::kParameter) return std::nullopt;
  return root->operand(0) == root->operand(1) ? std::nullopt : std::optional<Opcode>(root->opcode());
}

}  // namespace tenon
