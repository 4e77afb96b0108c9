#include "hlo/library/describe.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "hlo/computation.h"
#include "hlo/library/custom_calls.h"
#include "hlo/own_calls.h"

namespace tenon::library {
namespace {

constexpr std::string_view kMarkers[] = {
    "Sharding",   "SPMDFullToShardShape", "SPMDShardToFullShape",     "LayoutConstraint",
    "MoveToHost", "MoveToDevice",         "annotate_device_placement"};
constexpr std::string_view kTopK = "TopK";

// "lapack_<letter><routine>_ffi" -> function, and the attributes that its backend_config may have.
struct Routine {
  std::string_view letters, routine, function;
  std::vector<std::string> attributes;
};
const std::vector<Routine>& Routines() {
  static const auto* routines = new std::vector<Routine>{
      {"sdcz", "potrf", "potrf", {"uplo"}},
      {"sdcz", "getrf", "getrf", {}},
      {"sdcz", "geqrf", "geqrf", {}},
      {"sdcz", "trsm", "trsm", {"side", "uplo", "trans_x", "diag"}},
      {"sd", "orgqr", "orgqr", {}},
      {"cz", "ungqr", "orgqr", {}},
      {"sd", "syevd", "syevd", {"mode", "uplo"}},
      {"cz", "heevd", "syevd", {"mode", "uplo"}},
      {"sdcz", "gesdd", "gesdd", {"mode"}},
  };
  return *routines;
}

// Targets of the compiler's own making (passes/expand/library_sorts.cc, aten's lowering): functions of sort.cc. All their
// attributes are numbers; absent ones are 0.
struct OwnCall {
  std::string_view target, function;
  std::vector<std::string> attributes;
};
const std::vector<OwnCall>& OwnCalls() {
  static const auto* calls = new std::vector<OwnCall>{
      {"tenon.sort", "sort", {"key", "dimension", "descending", "total", "nan_first", "positions", "hidden_key"}},
      {"tenon.topk", "topk", {"largest", "skip"}},
      {"tenon.searchsorted", "searchsorted", {"right"}},
  };
  return *calls;
}
const OwnCall* OwnCallOf(std::string_view target) {
  for (const OwnCall& c : OwnCalls()) {
    if (c.target == target) return &c;
  }
  return nullptr;
}

std::string TargetOf(char letter, const Routine& r) {
  return absl::StrCat("lapack_", std::string(1, letter), std::string(r.routine), "_ffi");
}

const Routine* RoutineOf(const std::string& target) {
  if (!absl::StartsWith(target, "lapack_")) return nullptr;
  for (const Routine& r : Routines()) {
    for (char letter : r.letters) {
      if (target == TargetOf(letter, r)) return &r;
    }
  }
  return nullptr;
}

bool IsRegistered(const Instruction& call) { return FindCustomCall(call.custom_call_target()) != nullptr; }

void DescribeCustomCall(const Instruction& op, Signature* s) {
  const std::string& target = op.custom_call_target();
  if (!IsRegistered(op)) {
    const OwnCall* own = OwnCallOf(target);
    const Routine* routine = own == nullptr ? RoutineOf(target) : nullptr;
    TENON_CHECK(own != nullptr || routine != nullptr, target);
    s->function = std::string(own != nullptr ? own->function : routine->function);
    for (const std::string& name : own != nullptr ? own->attributes : routine->attributes) {
      if (auto value = CustomCallAttribute(op.backend_config(), name)) s->attributes.Set(name, static_cast<int64_t>(*value));
    }
    return;
  }
  s->function = "custom-call";
  s->attributes.Set("target", target);
  s->attributes.Set("name", op.name());
  s->attributes.Set("backend_config", op.backend_config());
  s->attributes.Set("instruction", op.ToString());
  s->attributes.Set("tuple", int64_t{op.shape().is_tuple()});
}

void DescribeAttributes(const Instruction& op, Signature* s) {
  const Attributes& attrs = op.attrs();
  auto flag = [&](const char* name, Attr a) { s->attributes.Set(name, int64_t{attrs.get_or<bool>(a, false)}); };
  auto text = [&](const char* name, Attr a, std::string otherwise) {
    s->attributes.Set(name, attrs.get_or<std::string>(a, std::move(otherwise)));
  };
  s->function = std::string(OpcodeName(op.opcode()));
  switch (op.opcode()) {
    case Opcode::kCholesky: return flag("lower", Attr::kLower);
    case Opcode::kFft:
      text("fft_type", Attr::kFftType, "");
      return s->attributes.Set("fft_length", op.int_list(Attr::kFftLength));
    case Opcode::kTriangularSolve:
      flag("left_side", Attr::kLeftSide);
      flag("lower", Attr::kLower);
      flag("unit_diagonal", Attr::kUnitDiagonal);
      return text("transpose_a", Attr::kTransposeA, "NO_TRANSPOSE");
    case Opcode::kRng: return text("distribution", Attr::kDistribution, "");
    case Opcode::kRngBitGenerator: return text("algorithm", Attr::kRngAlgorithm, "");
    case Opcode::kRngGetAndUpdateState: return s->attributes.Set("delta", attrs.get_or<int64_t>(Attr::kDelta, 0));
    case Opcode::kRaggedAllToAll: return;
    case Opcode::kCustomCall: return DescribeCustomCall(op, s);
    default: TENON_CHECK(false, s->function);
  }
}

}  // namespace

bool IsMarker(const Instruction& op) {
  return op.opcode() == Opcode::kCustomCall && !IsRegistered(op) &&
         std::find(std::begin(kMarkers), std::end(kMarkers), op.custom_call_target()) != std::end(kMarkers);
}

bool IsTopKCall(const Instruction& op) {
  return op.opcode() == Opcode::kCustomCall && op.custom_call_target() == kTopK && !IsRegistered(op);
}

bool TopKLargest(const Instruction& op) {
  bool largest = true;
  for (const Computation* comparison : op.called_computations()) {
    const Instruction* root = comparison->root();
    if (root->opcode() == Opcode::kCompare) largest = root->comparison_direction().starts_with("G");
  }
  return largest;
}

bool IsLibraryCall(const Instruction& op) {
  switch (op.opcode()) {
    case Opcode::kCholesky:
    case Opcode::kFft:
    case Opcode::kTriangularSolve:
    case Opcode::kRng:
    case Opcode::kRngBitGenerator:
    case Opcode::kRngGetAndUpdateState:
    case Opcode::kRaggedAllToAll: return true;
    case Opcode::kCustomCall: {
      const std::string& target = op.custom_call_target();
      if (IsFrameworkCall(op) || target == "tenon.check" || IsPointwiseCall(op)) return false;
      return IsRegistered(op) || OwnCallOf(target) != nullptr || RoutineOf(target) != nullptr;
    }
    default: return false;
  }
}

absl::StatusOr<Signature> DescribeWith(const Instruction& op, absl::Span<const Shape> operands) {
  TENON_CHECK(IsLibraryCall(op), op.ToString());
  auto refused = [&](std::string_view what) {
    return absl::UnimplementedError(
        absl::StrCat(std::string(OpcodeName(op.opcode())), " \"", op.name(), "\" (", op.shape().ToString(), "): ", std::string(what)));
  };
  Signature s;
  DescribeAttributes(op, &s);
  for (const Shape& operand : operands) {
    if (!operand.is_array()) return refused("a library call with operands that aren't arrays");
    s.operands.emplace_back(operand.element_type(), operand.dims());
  }
  const std::vector<Shape> leaves = FlattenShape(op.shape());
  if (op.shape().is_tuple() && leaves.size() != op.shape().elements().size()) {
    return refused("a library call with a nested tuple as result");
  }
  for (const Shape& leaf : leaves) {
    if (!leaf.is_array()) return refused("a library call with a result that isn't arrays");
    s.results.emplace_back(leaf.element_type(), leaf.dims());
  }
  return s;
}

absl::StatusOr<Signature> Describe(const Instruction& op) {
  std::vector<Shape> operands;
  bool is_static = op.shape().is_static();
  for (const Instruction* o : op.operands()) {
    operands.push_back(o->shape());
    is_static = is_static && o->shape().is_static();
  }
  TENON_ASSIGN_OR_RETURN(Signature s, DescribeWith(op, operands));
  const Function* function = FindFunction(s.function);
  if (!is_static && (function == nullptr || !function->takes_symbols)) {
    return absl::UnimplementedError(absl::StrCat(std::string(OpcodeName(op.opcode())), " \"", op.name(), "\" (",
                                                 op.shape().ToString(), "): a library call wants static sizes"));
  }
  if (absl::Status status = CheckSignature(s); !status.ok()) {
    return absl::Status(status.code(), absl::StrCat(op.name(), ": ", status.message()));
  }
  return s;
}

std::vector<std::string> OwnTargets() {
  std::vector<std::string> names(std::begin(kMarkers), std::end(kMarkers));
  names.emplace_back(kTopK);
  for (const OwnCall& c : OwnCalls()) names.emplace_back(c.target);
  for (const Routine& r : Routines()) {
    for (char letter : r.letters) names.push_back(TargetOf(letter, r));
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace tenon::library
