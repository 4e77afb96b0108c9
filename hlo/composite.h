// Composites: calls that say by name what they compute, XLA's.
//
//   call(q, k, v), to_apply=body, is_composite=true,
//     frontend_attributes={composite.attributes={scale = 0.125 : f64},composite.name="tenon.attention",composite.version="1"}
//
// The body is the meaning. Who knows the name may compute it otherwise, as well as the body does or better; for all others it is a call.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hlo/instruction.h"

namespace tenon {

struct Composite {
  std::string name, version;
  std::vector<std::pair<std::string, std::string>> attributes;  // key and value, as text; a value's type is left out

  const std::string* Find(std::string_view key) const;  // null: there is none
};

bool IsComposite(const Instruction& op);  // a call with the mark
// InvalidArgument: no composite, or its attributes cannot be read; the message says so.
absl::StatusOr<Composite> CompositeOf(const Instruction& op);

// `call` becomes one. Numbers are written with their type behind: {"scale", "0.125 : f64"}.
void MarkComposite(Instruction* call, const Composite& composite);
// It becomes an ordinary call; other frontend attributes stay.
void UnmarkComposite(Instruction* call);

}  // namespace tenon
