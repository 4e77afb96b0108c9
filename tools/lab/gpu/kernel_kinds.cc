#include "tools/lab/gpu/kernel_kinds.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

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

constexpr KernelKind kKinds[] = {
    {"softmax", kSoftmax, " row "},      {"columns", kColumnSums, " column "},   {"transposed", kTransposed, " transpose "},
    {"pointwise", kPointwise, " loop "}, {"product", kProduct, " contraction "}, {"updated", kUpdated, " scatter "},
};

}  // namespace

absl::Span<const KernelKind> KernelKinds() { return kKinds; }

bool TakesType(const KernelKind& kind, std::string_view type) {
  const bool floats = type[0] != 's' && type[0] != 'u', complex = type[0] == 'c';
  if (kind.body == kSoftmax) return floats && !complex && type != "f64";
  return kind.body != kPointwise || !complex;
}

std::string KindText(const KernelKind& kind, const std::string& type, int64_t rows, int64_t columns) {
  const std::string text = absl::StrCat("HloModule m\n", kRegions, "ENTRY e {\n", kind.body, "}\n");
  return absl::StrReplaceAll(text, {{"TYPE", type}, {"ROWS", absl::StrCat(rows)}, {"COLUMNS", absl::StrCat(columns)}});
}

}  // namespace tenon::gpu
