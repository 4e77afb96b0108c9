// A contraction may name who computes it: backend_config={"tenon":{"provider":"generated"}}. It then stays a contraction as it stands, and
// that provider computes it if it takes it (backends/contract/provider.h).
#pragma once

#include <string>
#include <string_view>

#include "hlo/instruction.h"

namespace tenon {

std::string NamedProvider(const Instruction& contraction);  // "": none
void NameProvider(Instruction* contraction, std::string_view provider);

}  // namespace tenon
