#include "tools/lab/gpu/kernel_kinds.h"

#include <iterator>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "hlo/check.h"

namespace tenon::gpu {
namespace {

constexpr char kRegions[] = R"(
add { a = TYPE[] parameter(0) b = TYPE[] parameter(1) ROOT r = TYPE[] add(a, b) }
max { a = TYPE[] parameter(0) b = TYPE[] parameter(1) ROOT r = TYPE[] maximum(a, b) }
)";

// Softmax, and what is left of the row.
constexpr char kSoftmax[] = R"(
  x = TYPE[ROWS,COLUMNS] parameter(0)
  low = TYPE[] constant(-inf)
  m = TYPE[ROWS] reduce(x, low), dimensions={1}, to_apply=max
  mb = TYPE[ROWS,COLUMNS] broadcast(m), dimensions={0}
  d = TYPE[ROWS,COLUMNS] subtract(x, mb)
  e = TYPE[ROWS,COLUMNS] exponential(d)
  zero = TYPE[] constant(0)
  s = TYPE[ROWS] reduce(e, zero), dimensions={1}, to_apply=add
  sb = TYPE[ROWS,COLUMNS] broadcast(s), dimensions={0}
  ROOT r = TYPE[ROWS,COLUMNS] divide(e, sb)
)";
constexpr char kColumnSums[] = R"(
  x = TYPE[ROWS,COLUMNS] parameter(0)
  zero = TYPE[] constant(0)
  s = TYPE[COLUMNS] reduce(x, zero), dimensions={0}, to_apply=add
  sb = TYPE[ROWS,COLUMNS] broadcast(s), dimensions={1}
  r = TYPE[ROWS,COLUMNS] subtract(x, sb)
  ROOT t = (TYPE[COLUMNS], TYPE[ROWS,COLUMNS]) tuple(s, r)
)";
constexpr char kTransposed[] = R"(
  x = TYPE[COLUMNS,ROWS] parameter(0)
  y = TYPE[ROWS,COLUMNS] parameter(1)
  t = TYPE[ROWS,COLUMNS] transpose(x), dimensions={1,0}
  ROOT r = TYPE[ROWS,COLUMNS]{1,0} subtract(y, t)
)";
constexpr char kPointwise[] = R"(
  x = TYPE[ROWS,COLUMNS] parameter(0)
  y = TYPE[COLUMNS] parameter(1)
  yb = TYPE[ROWS,COLUMNS] broadcast(y), dimensions={1}
  a = TYPE[ROWS,COLUMNS] subtract(x, yb)
  ROOT r = TYPE[ROWS,COLUMNS] maximum(a, x)
)";
constexpr char kProduct[] = R"(
  x = TYPE[ROWS,40] parameter(0)
  y = TYPE[40,COLUMNS] parameter(1)
  ROOT d = TYPE[ROWS,COLUMNS] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
)";
constexpr char kUpdated[] = R"(
  x = TYPE[ROWS,COLUMNS] parameter(0)
  i = s32[7,1] parameter(1)
  u = TYPE[7,COLUMNS] parameter(2)
  ROOT r = TYPE[ROWS,COLUMNS] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add
)";

// Pairs by their first numbers, of many equal ones; the sum is a producer.
constexpr char kSorted[] = R"(
less {
  a = TYPE[] parameter(0) b = TYPE[] parameter(1) c = s32[] parameter(2) d = s32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=LTORDER
}
ENTRY
  x = TYPE[ROWS,COLUMNS] parameter(0)
  y = TYPE[COLUMNS] parameter(1)
  yb = TYPE[ROWS,COLUMNS] broadcast(y), dimensions={1}
  z = TYPE[ROWS,COLUMNS] maximum(x, yb)
  i = s32[ROWS,COLUMNS] iota(), iota_dimension=1
  s = (TYPE[ROWS,COLUMNS], s32[ROWS,COLUMNS]) sort(z, i), dimensions={1}, is_stable=true, to_apply=less
  v = TYPE[ROWS,COLUMNS] get-tuple-element(s), index=0
  p = s32[ROWS,COLUMNS] get-tuple-element(s), index=1
  ROOT t = (s32[ROWS,COLUMNS], TYPE[ROWS,COLUMNS]) tuple(p, v)
)";
constexpr char kTop[] = R"(
  x = TYPE[ROWS,COLUMNS] parameter(0)
  ROOT t = (TYPE[ROWS,1], s32[ROWS,1]) topk(x), k=1, largest=true
)";
constexpr char kRunningSums[] = R"(
step { a = TYPE[ROWS] parameter(0) b = TYPE[ROWS] parameter(1) s = TYPE[ROWS] add(a, b) ROOT r = (TYPE[ROWS], TYPE[ROWS]) tuple(s, s) }
ENTRY
  x = TYPE[ROWS,COLUMNS] parameter(0)
  z = TYPE[ROWS] parameter(1)
  ROOT t = (TYPE[ROWS,COLUMNS], TYPE[ROWS]) scan(x, z), dimensions={1}, num_carries=1, to_apply=step
)";
constexpr char kRunningMaxima[] = R"(
step { a = TYPE[COLUMNS] parameter(0) b = TYPE[COLUMNS] parameter(1) s = TYPE[COLUMNS] maximum(a, b) ROOT r = (TYPE[COLUMNS], TYPE[COLUMNS]) tuple(s, s) }
ENTRY
  x = TYPE[ROWS,COLUMNS] parameter(0)
  y = TYPE[ROWS,COLUMNS] parameter(1)
  z = TYPE[COLUMNS] parameter(2)
  d = TYPE[ROWS,COLUMNS] subtract(x, y)
  ROOT t = (TYPE[ROWS,COLUMNS], TYPE[COLUMNS]) scan(d, z), dimensions={0}, num_carries=1, is_reverse=true, to_apply=step
)";
// In f32, by teams, from the end: what is made of the sums, and the sums themselves.
constexpr char kSumsNarrowed[] = R"(
step { a = f32[ROWS] parameter(0) b = f32[ROWS] parameter(1) s = f32[ROWS] add(a, b) ROOT r = (f32[ROWS], f32[ROWS]) tuple(s, s) }
ENTRY
  x = TYPE[ROWS,COLUMNS] parameter(0)
  y = TYPE[COLUMNS] parameter(1)
  f = f32[ROWS,COLUMNS] convert(x)
  zero = f32[] constant(0)
  z = f32[ROWS] broadcast(zero), dimensions={}
  s = (f32[ROWS,COLUMNS], f32[ROWS]) scan(f, z), dimensions={1}, num_carries=1, is_reverse=true, to_apply=step
  g = f32[ROWS,COLUMNS] get-tuple-element(s), index=0
  c = TYPE[ROWS,COLUMNS] convert(g)
  yb = TYPE[ROWS,COLUMNS] broadcast(y), dimensions={1}
  ROOT r = TYPE[ROWS,COLUMNS] subtract(c, yb)
)";
// Step by step, as grouping matters.
constexpr char kDifferences[] = R"(
step { a = TYPE[ROWS] parameter(0) b = TYPE[ROWS] parameter(1) s = TYPE[ROWS] subtract(a, b) ROOT r = (TYPE[ROWS], TYPE[ROWS]) tuple(s, s) }
ENTRY
  x = TYPE[ROWS,COLUMNS] parameter(0)
  y = TYPE[ROWS,COLUMNS] parameter(1)
  z = TYPE[ROWS] parameter(2)
  s = (TYPE[ROWS,COLUMNS], TYPE[ROWS]) scan(x, z), dimensions={1}, num_carries=1, to_apply=step
  g = TYPE[ROWS,COLUMNS] get-tuple-element(s), index=0
  m = TYPE[ROWS,COLUMNS] subtract(y, g)
  ROOT t = (TYPE[ROWS,COLUMNS], TYPE[ROWS,COLUMNS]) tuple(g, m)
)";

// The softmax in f32 of scaled scores with a bias.
constexpr char kAttention[] = R"(
wide_add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
wide_max { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] maximum(a, b) }
ENTRY
  q = TYPE[2,ROWS,24] parameter(0)
  k = TYPE[2,COLUMNS,24] parameter(1)
  v = TYPE[2,COLUMNS,40] parameter(2)
  bias = f32[ROWS,COLUMNS] parameter(3)
  d = TYPE[2,ROWS,COLUMNS] dot(q, k), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}
  c = f32[2,ROWS,COLUMNS] convert(d)
  bb = f32[2,ROWS,COLUMNS] broadcast(bias), dimensions={1,2}
  x = f32[2,ROWS,COLUMNS] add(c, bb)
  low = f32[] constant(-inf)
  m = f32[2,ROWS] reduce(x, low), dimensions={2}, to_apply=wide_max
  mb = f32[2,ROWS,COLUMNS] broadcast(m), dimensions={0,1}
  n = f32[2,ROWS,COLUMNS] subtract(x, mb)
  e = f32[2,ROWS,COLUMNS] exponential(n)
  zero = f32[] constant(0)
  s = f32[2,ROWS] reduce(e, zero), dimensions={2}, to_apply=wide_add
  sb = f32[2,ROWS,COLUMNS] broadcast(s), dimensions={0,1}
  p = f32[2,ROWS,COLUMNS] divide(e, sb)
  w = TYPE[2,ROWS,COLUMNS] convert(p)
  ROOT o = TYPE[2,ROWS,40] dot(w, v), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}
)";

// A model for which rows of some hundred elements are long.
constexpr char kLittleShared[] = "sm_80,shared_per_block=1600";
constexpr KernelKind kKinds[] = {
    {"softmax", kSoftmax, " row "},
    {"columns", kColumnSums, " column "},
    {"transposed", kTransposed, " transpose "},
    {"pointwise", kPointwise, " loop "},
    {"product", kProduct, " slice=16 "},
    {"attention", kAttention, " attention "},
    {"updated", kUpdated, " scatter "},
    {"sorted", kSorted, " sort ", kLittleShared},
    {"top", kTop, " sort ", kLittleShared},
    {"sums_along", kRunningSums, " scan "},
    {"maxima_along", kRunningMaxima, " scan "},
    {"sums_narrowed", kSumsNarrowed, " scan "},
    {"differences_along", kDifferences, " scan "},
};

}  // namespace

absl::Span<const KernelKind> KernelKinds() { return kKinds; }

const KernelKind& FindKernelKind(std::string_view name) {
  const auto* found = absl::c_find_if(kKinds, [&](const KernelKind& kind) { return kind.name == name; });
  TENON_CHECK(found != std::end(kKinds), absl::StrCat("no kernel kind ", std::string(name)));
  return *found;
}

bool TakesType(const KernelKind& kind, std::string_view type) {
  const bool floats = type[0] != 's' && type[0] != 'u', complex = type[0] == 'c';
  if (kind.body == kSoftmax || kind.body == kAttention) return floats && !complex;
  return !complex || (kind.body != kPointwise && kind.body != kSorted && kind.body != kTop && kind.body != kRunningMaxima);
}

std::string KindText(const KernelKind& kind, const std::string& type, int64_t rows, int64_t columns) {
  const std::string body = kind.body;
  const size_t entry = body.find("ENTRY\n");
  const std::string own = entry == std::string::npos ? "" : body.substr(0, entry);
  const std::string text =
      absl::StrCat("HloModule m\n", kRegions, own, "ENTRY e {\n", entry == std::string::npos ? body : body.substr(entry + 6), "}\n");
  const bool floats = type[0] == 'f' || type[0] == 'b';
  return absl::StrReplaceAll(text, {{"TYPE", type}, {"ORDER", floats ? ", type=TOTALORDER" : ""},
                                    {"ROWS", absl::StrCat(rows)}, {"COLUMNS", absl::StrCat(columns)}});
}

}  // namespace tenon::gpu
