#include "tools/lab/judge/violations.h"

#include <sys/mman.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "hlo/check.h"
#include "hlo/sizes.h"

namespace tenon::lab {
namespace {

// A page whose every access is a signal.
void* Untouchable() {
  static void* page = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  TENON_CHECK(page != MAP_FAILED, "no memory");
  return page;
}

struct Input {
  Shape want;  // the leaf of a parameter
  std::vector<int64_t> sizes, strides;
  PrimitiveType type;

  TenonTensor Tensor() const {
    return {.tensor = nullptr, .data = Untouchable(), .sizes = sizes.data(), .strides = strides.data(),
            .dtype = static_cast<int32_t>(type), .ndim = static_cast<int32_t>(sizes.size())};
  }
};
using Call = std::vector<Input>;

std::vector<int64_t> DenseStrides(const Shape& want, const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t next = 1;
  for (int64_t d : want.minor_to_major()) {
    strides[static_cast<size_t>(d)] = next;
    next *= sizes[static_cast<size_t>(d)];
  }
  return strides;
}

// nullopt: sizes that no array has.
std::optional<Call> CallWith(const std::vector<Shape>& leaves, const Sizes& sizes) {
  Call call;
  for (const Shape& leaf : leaves) {
    Input in{.want = leaf, .type = leaf.element_type()};
    for (Dim d : leaf.dims()) {
      const absl::StatusOr<int64_t> size = SizeOf(d, sizes);
      if (!size.ok() || *size < 0) return std::nullopt;
      in.sizes.push_back(*size);
    }
    in.strides = DenseStrides(leaf, in.sizes);
    call.push_back(std::move(in));
  }
  return call;
}

struct Named {
  std::string what;
  Call call;
};

class Maker {
 public:
  Maker(const Module& module, const Sizes& sizes) : module_(module), sizes_(sizes) {
    for (const Instruction* p : module.entry()->parameters()) {
      for (const Shape& leaf : FlattenShape(p->shape())) leaves_.push_back(leaf);
    }
  }

  std::vector<Named> All() {
    const std::optional<Call> right = CallWith(leaves_, sizes_);
    TENON_CHECK(right.has_value(), SizesText(sizes_));
    right_ = *right;
    Ranges();
    for (size_t i = 0; i < right_.size(); ++i) {
      if (!right_[i].want.is_array()) continue;
      for (size_t d = 0; d < right_[i].sizes.size(); ++d) {
        SizesAt(i, d);
        StrideAt(i, d);
      }
      Ranks(i);
    }
    return std::move(all_);
  }

 private:
  template <typename Change>
  void Add(std::string what, size_t i, Change&& change) {
    Call call = right_;
    change(call[i]);
    all_.push_back({absl::StrCat("input ", i, " ", leaves_[i].ToString(), ": ", what), std::move(call)});
  }

  // All dims as the sizes make them, and these out of range.
  void Ranges() {
    for (Dim symbol : SymbolsOf(module_)) {
      const DimExpr& e = *symbol.expr();
      std::vector<int64_t> outside;
      if (e.lower > 0) outside.push_back(e.lower - e.divisor);
      if (e.upper < (int64_t{1} << 40)) outside.push_back(e.upper + e.divisor);
      if (e.divisor > 1) outside.push_back(sizes_.at(e.symbol) + 1);
      for (int64_t size : outside) {
        Sizes sizes = sizes_;
        sizes[e.symbol] = size;
        if (auto call = CallWith(leaves_, sizes)) all_.push_back({absl::StrCat("with ", SizesText(sizes)), *std::move(call)});
      }
    }
  }

  // One dim of one input.
  void SizesAt(size_t i, size_t d) {
    for (int64_t by : {1, -1}) {
      if (right_[i].sizes[d] + by < 0 || MayBe(i, d, right_[i].sizes[d] + by)) continue;
      Add(absl::StrCat("size ", right_[i].sizes[d] + by, " along dim ", d), i, [&](Input& in) {
        in.sizes[d] += by;
        in.strides = DenseStrides(in.want, in.sizes);
      });
    }
  }

  // Whether some sizes of the symbols make that a right call: then it is none to refuse.
  bool MayBe(size_t i, size_t d, int64_t size) const {
    Sizes sizes;
    std::vector<std::vector<int64_t>> came;
    for (const Input& in : right_) came.push_back(in.sizes);
    came[i][d] = size;
    for (size_t j = 0; j < leaves_.size(); ++j) {
      for (int64_t k = 0; k < leaves_[j].rank(); ++k) {
        const DimExpr* e = leaves_[j].dim(k).expr();
        if (e != nullptr && e->kind == DimExpr::Kind::kSymbol) sizes.emplace(e->symbol, came[j][static_cast<size_t>(k)]);
      }
    }
    for (Dim symbol : SymbolsOf(module_)) {
      const DimExpr& e = *symbol.expr();
      const auto it = sizes.find(e.symbol);
      if (it == sizes.end() || it->second < e.lower || it->second > e.upper || it->second % e.divisor != 0) return false;
    }
    const std::optional<Call> call = CallWith(leaves_, sizes);
    if (!call.has_value()) return false;
    for (size_t j = 0; j < leaves_.size(); ++j) {
      if ((*call)[j].sizes != came[j]) return false;
    }
    return true;
  }

  void StrideAt(size_t i, size_t d) {
    const std::vector<int64_t>& sizes = right_[i].sizes;
    if (sizes[d] < 2 || std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return;
    Add(absl::StrCat("twice the stride along dim ", d), i, [&](Input& in) { in.strides[d] *= 2; });
    Add(absl::StrCat("stride 0 along dim ", d), i, [&](Input& in) { in.strides[d] = 0; });
  }

  void Ranks(size_t i) {
    Add("another dim before its own", i, [](Input& in) {
      in.sizes.insert(in.sizes.begin(), 1);
      in.strides.insert(in.strides.begin(), 1);
    });
    if (!right_[i].sizes.empty()) {
      Add("without its last dim", i, [](Input& in) {
        in.sizes.pop_back();
        in.strides.pop_back();
      });
    }
    Add("of another type", i,
        [](Input& in) { in.type = in.type == PrimitiveType::kF32 ? PrimitiveType::kS32 : PrimitiveType::kF32; });
  }

  const Module& module_;
  const Sizes& sizes_;
  std::vector<Shape> leaves_;
  Call right_;
  std::vector<Named> all_;
};

// "" or what is wrong with how the call was taken.
std::string Wrong(const Named& named, Executable& executable) {
  std::vector<TenonTensor> in, out(executable.program().outputs.size());
  for (const Input& i : named.call) in.push_back(i.Tensor());
  for (TenonTensor& t : out) t.data = Untouchable();
  const absl::Status checked = executable.Check(in.data());
  if (checked.ok()) return absl::StrCat("a call that breaks a guard passes the check: ", named.what);
  const RunResult result = executable.Run(in.data(), out.data());
  if (result.code == TENON_OK) return absl::StrCat("a call that breaks a guard was not refused: ", named.what);
  for (const std::string& text : {result.error, std::string(checked.message())}) {
    const bool told = (absl::StrContains(text, "wanted") || absl::StrContains(text, "compiled for")) && absl::StrContains(text, "got");
    if (!told) return absl::StrCat("a refusal doesn't say what was wanted and what came: ", named.what, ": ", text);
  }
  return "";
}

}  // namespace

Violations TryViolations(const Module& module, Executable& executable, absl::Span<const Literal> arguments, int64_t most) {
  Violations v;
  const absl::StatusOr<Sizes> sizes = SizesOfArguments(module, arguments);
  TENON_CHECK(sizes.ok(), std::string(sizes.status().message()));
  const std::vector<Named> all = Maker(module, *sizes).All();
  const auto count = static_cast<int64_t>(all.size());
  const int64_t calls = std::min(count, most);
  for (int64_t k = 0; k < calls && v.wrong.empty(); ++k, ++v.calls) {
    v.wrong = Wrong(all[static_cast<size_t>(k * count / calls)], executable);
  }
  return v;
}

}  // namespace tenon::lab
