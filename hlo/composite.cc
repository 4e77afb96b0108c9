#include "hlo/composite.h"

#include <functional>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "hlo/text/lexer.h"

namespace tenon {
namespace {

// {key=value, ...}: `take` reads a value.
bool ReadList(Lexer& lexer, const std::function<bool(const std::string& key)>& take) {
  if (!lexer.Expect('{')) return false;
  while (!lexer.Try('}')) {
    const std::string key(lexer.Identifier());
    if (key.empty() || !lexer.Expect('=') || !take(key)) return false;
    if (!lexer.Try(',') && lexer.Peek() != '}') return false;
  }
  return true;
}

std::optional<std::string> ReadValue(Lexer& lexer) {
  if (lexer.Peek() == '"') return lexer.Quoted();
  const std::optional<std::string_view> value = lexer.Balanced();
  return value ? std::optional<std::string>(*value) : std::nullopt;
}

bool ReadAttributes(Lexer& lexer, Composite* composite) {
  return ReadList(lexer, [&](const std::string& key) {
    std::optional<std::string> value = ReadValue(lexer);
    if (!value) return false;
    composite->attributes.emplace_back(key, *std::move(value));
    return !lexer.Try(':') || lexer.Balanced().has_value();
  });
}

}  // namespace

const std::string* Composite::Find(std::string_view key) const {
  for (const auto& [name, value] : attributes) {
    if (name == key) return &value;
  }
  return nullptr;
}

bool IsComposite(const Instruction& op) {
  return op.opcode() == Opcode::kCall && op.attrs().get_or<bool>(Attr::kIsComposite, false);
}

absl::StatusOr<Composite> CompositeOf(const Instruction& op) {
  if (!IsComposite(op)) return absl::InvalidArgumentError(absl::StrCat(op.name(), " is no composite"));
  const std::string text = op.attrs().get_or<std::string>(Attr::kFrontendAttributes, "");
  Lexer lexer(text);
  Composite composite;
  const bool read = ReadList(lexer, [&](const std::string& key) {
    if (key == "composite.attributes") return ReadAttributes(lexer, &composite);
    std::optional<std::string> value = ReadValue(lexer);
    if (!value) return false;
    if (key == "composite.name") composite.name = *value;
    if (key == "composite.version") composite.version = *value;
    return true;
  });
  if (!read || composite.name.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(op.name(), ": wanted composite.name in frontend_attributes, got ", text));
  }
  return composite;
}

void MarkComposite(Instruction* call, const Composite& composite) {
  std::string attributes;
  for (const auto& [key, value] : composite.attributes) {
    absl::StrAppend(&attributes, attributes.empty() ? "" : ", ", key, " = ", value);
  }
  call->mutable_attrs().set(Attr::kIsComposite, true);
  call->mutable_attrs().set(Attr::kFrontendAttributes,
                            absl::StrCat("{composite.attributes={", attributes, "},composite.name=\"", Escape(composite.name),
                                         "\",composite.version=\"", Escape(composite.version), "\"}"));
}

void UnmarkComposite(Instruction* call) {
  call->mutable_attrs().erase(Attr::kIsComposite);
  const std::string text = call->attrs().get_or<std::string>(Attr::kFrontendAttributes, "");
  Lexer lexer(text);
  std::string others;
  const bool read = ReadList(lexer, [&](const std::string& key) {
    lexer.SkipSpace();
    const size_t start = lexer.position();
    if (!lexer.Balanced()) return false;
    const std::string_view value = lexer.Between(start, lexer.position());
    if (!key.starts_with("composite.")) absl::StrAppend(&others, others.empty() ? "" : ",", key, "=", std::string(value));
    return true;
  });
  if (!read) return;
  call->mutable_attrs().erase(Attr::kFrontendAttributes);
  if (!others.empty()) call->mutable_attrs().set(Attr::kFrontendAttributes, absl::StrCat("{", others, "}"));
}

}  // namespace tenon
