#include "hlo/primitive_type.h"

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace tenon {
namespace {

struct TypeRow {
  std::string_view name;
  int bits;
  TypeClass type_class;
  int64_t bytes;
};

constexpr TypeRow kRows[] = {
#define TENON_TYPE(e, name, bits, type_class, bytes) {name, bits, TypeClass::type_class, bytes},
#include "hlo/types.def"
};

constexpr const TypeRow& Row(PrimitiveType type) { return kRows[static_cast<int>(type)]; }

}  // namespace

std::string_view PrimitiveTypeName(PrimitiveType type) { return Row(type).name; }
TypeClass ClassOf(PrimitiveType type) { return Row(type).type_class; }
int BitWidth(PrimitiveType type) { return Row(type).bits; }
int64_t ByteWidth(PrimitiveType type) { return Row(type).bytes; }

std::optional<PrimitiveType> ParsePrimitiveType(std::string_view name) {
  static const auto* types = [] {
    auto* map = new absl::flat_hash_map<absl::string_view, PrimitiveType>;
    for (size_t i = 0; i < std::size(kRows); ++i) {
      (*map)[{kRows[i].name.data(), kRows[i].name.size()}] = static_cast<PrimitiveType>(i);
    }
    return map;
  }();
  auto it = types->find({name.data(), name.size()});
  if (it == types->end()) return std::nullopt;
  return it->second;
}

PrimitiveType ComplexComponent(PrimitiveType type) {
  if (type == PrimitiveType::kC64) return PrimitiveType::kF32;
  if (type == PrimitiveType::kC128) return PrimitiveType::kF64;
  return type;
}

}  // namespace tenon
