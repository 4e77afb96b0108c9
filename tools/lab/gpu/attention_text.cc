#include "tools/lab/gpu/attention_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace tenon::gpu {
namespace {

std::string MaskText(AttentionMask mask) {
  switch (mask) {
    case AttentionMask::kNone:
      return "";
    case AttentionMask::kBias:
    case AttentionMask::kGuarded:
    case AttentionMask::kShiftGuarded:
      return "  bias = f32[BATCHQ,K] parameter(3)\n  x = f32[BATCHQ,K] add(scaled, bias)\n";
    case AttentionMask::kCausal:
      return "  i = s32[BATCHQ,K] iota(), iota_dimension=QDIM\n  j = s32[BATCHQ,K] iota(), iota_dimension=KDIM\n"
             "  seen = pred[BATCHQ,K] compare(j, i), direction=LE\n  none = f32[BATCHQ,K] broadcast(low), dimensions={}\n"
             "  x = f32[BATCHQ,K] select(seen, scaled, none)\n";
    case AttentionMask::kPredicate:
      return "  mask = pred[K] parameter(3)\n  seen = pred[BATCHQ,K] broadcast(mask), dimensions={KDIM}\n"
             "  few = f32[] constant(-1e9)\n  none = f32[BATCHQ,K] broadcast(few), dimensions={}\n"
             "  x = f32[BATCHQ,K] select(seen, scaled, none)\n";
  }
  return "";
}

constexpr char kText[] = R"(HloModule attention
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
max { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] maximum(a, b) }
and { a = pred[] parameter(0) b = pred[] parameter(1) ROOT r = pred[] and(a, b) }
ENTRY e {
  q = TYPE[BATCHQ,T] parameter(0)
KEYS  dot = TYPE[BATCHQ,K] dot(q, k), BATCHDIMSlhs_contracting_dims={KDIM}, rhs_contracting_dims={TDIM}
  wide = f32[BATCHQ,K] convert(dot)
  factor = f32[] constant(0.25)
  factors = f32[BATCHQ,K] broadcast(factor), dimensions={}
  scaled = f32[BATCHQ,K] multiply(wide, factors)
  low = f32[] constant(-inf)
  zero = f32[] constant(0)
MASK  m = f32[BATCHQ] reduce(x, low), dimensions={KDIM}, to_apply=max
SHIFT  mb = f32[BATCHQ,K] broadcast(shift), dimensions={KEPT}
  d = f32[BATCHQ,K] subtract(x, mb)
  e = f32[BATCHQ,K] exponential(d)
  s = f32[BATCHQ] reduce(e, zero), dimensions={KDIM}, to_apply=add
DIVISOR  sb = f32[BATCHQ,K] broadcast(divisor), dimensions={KEPT}
  o = f32[BATCHQ,K] divide(e, sb)
GUARD  p = TYPE[BATCHQ,K] convert(weights)
  ROOT r = TYPE[BATCHQ,C] dot(p, v), BATCHDIMSlhs_contracting_dims={KDIM}, rhs_contracting_dims={VDIM}
}
)";
constexpr char kStraight[] = "  k = TYPE[BATCHK,T] parameter(1)\n  v = TYPE[BATCHK,C] parameter(2)\n";
constexpr char kTurned[] = "  k = TYPE[BATCHT,K] parameter(1)\n  v = TYPE[BATCHC,K] parameter(2)\n";
constexpr char kShiftGuard[] = R"(  lows = f32[BATCHQ] broadcast(low), dimensions={}
  zeros = f32[BATCHQ] broadcast(zero), dimensions={}
  empty = pred[BATCHQ] compare(m, lows), direction=EQ
  shift = f32[BATCHQ] select(empty, zeros, m)
)";
constexpr char kDivisorGuard[] = R"(  one = f32[] constant(1)
  ones = f32[BATCHQ] broadcast(one), dimensions={}
  nothing = pred[BATCHQ] compare(s, zeros), direction=EQ
  divisor = f32[BATCHQ] select(nothing, ones, s)
)";
constexpr char kWeightsGuard[] = R"(  lows = f32[BATCHQ,K] broadcast(low), dimensions={}
  out = pred[BATCHQ,K] compare(x, lows), direction=EQ
  yes = pred[] constant(true)
  all = pred[BATCHQ] reduce(out, yes), dimensions={KDIM}, to_apply=and
  alls = pred[BATCHQ,K] broadcast(all), dimensions={KEPT}
  zeros = f32[BATCHQ,K] broadcast(zero), dimensions={}
  weights = f32[BATCHQ,K] select(alls, zeros, o)
)";

}  // namespace

std::string AttentionText(const AttentionSizes& s) {
  const bool batch = s.batch > 0, shifts = s.mask == AttentionMask::kShiftGuarded, guards = s.mask == AttentionMask::kGuarded;
  std::string text = absl::StrReplaceAll(kText, {{"KEYS", s.turned ? kTurned : kStraight},
                                                 {"MASK", MaskText(s.mask)},
                                                 {"SHIFT", shifts ? kShiftGuard : ""},
                                                 {"DIVISOR", shifts ? kDivisorGuard : ""},
                                                 {"GUARD", guards ? kWeightsGuard : ""}});
  // Names of what is not there.
  if (s.mask == AttentionMask::kNone) text = absl::StrReplaceAll(text, {{"(x, ", "(scaled, "}});
  if (!shifts) text = absl::StrReplaceAll(text, {{"(shift)", "(m)"}, {"(divisor)", "(s)"}});
  if (!guards) text = absl::StrReplaceAll(text, {{"(weights)", "(o)"}});
  const int rank = batch ? 3 : 2;
  text = absl::StrReplaceAll(
      text, {{"BATCHDIMS", batch ? "lhs_batch_dims={0}, rhs_batch_dims={0}, " : ""},
             {"KDIM", absl::StrCat(rank - 1)}, {"QDIM", absl::StrCat(rank - 2)}, {"KEPT", batch ? "0,1" : "0"},
             {"TDIM", absl::StrCat(s.turned ? rank - 2 : rank - 1)}, {"VDIM", absl::StrCat(s.turned ? rank - 1 : rank - 2)}});
  const std::string leading = batch ? absl::StrCat(s.batch, ",") : "";
  return absl::StrReplaceAll(text, {{"TYPE", s.type}, {"BATCHQ", absl::StrCat(leading, s.queries)},
                                    {"BATCHK", absl::StrCat(leading, s.keys)}, {"BATCHT", absl::StrCat(leading, s.terms)},
                                    {"BATCHC", absl::StrCat(leading, s.columns)},
                                    {",T]", absl::StrCat(",", s.terms, "]")}, {",K]", absl::StrCat(",", s.keys, "]")},
                                    {"[K]", absl::StrCat("[", s.keys, "]")},
                                    {",C]", absl::StrCat(",", s.columns, "]")}});
}

std::vector<Literal> AttentionInputs(const Module& module, uint64_t seed) {
  std::vector<Literal> inputs;
  uint64_t state = seed * 0x9e3779b97f4a7c15 + 1;
  for (const Instruction* p : module.entry()->parameters()) {
    Literal l(p->shape());
    for (int64_t i = 0; i < l.num_elements(); ++i) {
      state = state * 6364136223846793005 + 1442695040888963407;
      const int64_t number = static_cast<int64_t>(state >> 60);  // 0 to 15
      l.SetFromDouble(i, l.type() == PrimitiveType::kPred ? static_cast<double>(number % 4 != 0) : static_cast<double>(number - 8) / 8);
    }
    inputs.push_back(std::move(l));
  }
  return inputs;
}

}  // namespace tenon::gpu
