#include "hlo/library/call.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tenon::library {
namespace {

std::string Shapes(const std::vector<Shape>& shapes) {
  return absl::StrJoin(shapes, ", ", [](std::string* out, const Shape& s) { absl::StrAppend(out, s.ToString()); });
}

std::string ToText(const Attribute& a) {
  std::string value;
  if (const auto* number = std::get_if<int64_t>(&a.value)) value = absl::StrCat(*number);
  if (const auto* text = std::get_if<std::string>(&a.value)) value = absl::StrCat("\"", *text, "\"");
  if (const auto* list = std::get_if<std::vector<int64_t>>(&a.value)) value = absl::StrCat("[", absl::StrJoin(*list, ","), "]");
  return absl::StrCat(a.name, "=", value);
}

}  // namespace

std::string AttributeList::ToString() const {
  return absl::StrCat("{", absl::StrJoin(all_, ", ", [](std::string* out, const Attribute& a) { *out += ToText(a); }), "}");
}

const Function* FindFunction(std::string_view name) {
  for (absl::Span<const Function> family : {CustomCallFunctions(), FftFunctions(), LapackFunctions(), LapackLibraryFunctions(),
                                            LinalgFunctions(), RaggedFunctions(), RandomFunctions(), SortFunctions()}) {
    for (const Function& f : family) {
      if (f.name == name) return &f;
    }
  }
  return nullptr;
}

absl::Status CheckSignature(const Signature& signature) {
  const Function* function = FindFunction(signature.function);
  if (function == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("no library function \"", signature.function, "\""));
  }
  for (const std::vector<Shape>* shapes : {&signature.operands, &signature.results}) {
    for (const Shape& s : *shapes) {
      if (!s.is_array()) return Invalid(signature, "wanted arrays");
      for (Dim d : s.dims()) {
        if (!d.is_constant() && !function->takes_symbols)
          return absl::UnimplementedError(absl::StrCat(ToString(signature), ": wanted static sizes"));
        if (UpperBound(d) < 0) return Invalid(signature, "a negative size");
      }
    }
  }
  return function->check(signature);
}

int64_t ScratchBytes(const Signature& signature) {
  const Function* function = FindFunction(signature.function);
  TENON_CHECK(function != nullptr, signature.function);
  return function->scratch == nullptr ? 0 : function->scratch(signature);
}

std::string ToString(const Signature& signature) {
  return absl::StrCat(signature.function, "(", Shapes(signature.operands), ") -> (", Shapes(signature.results), ")");
}

absl::Status Invalid(const Signature& signature, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(ToString(signature), ": ", std::string(what)));
}

}  // namespace tenon::library
