// The difference of two texts, line by line.
#pragma once

#include <string>
#include <string_view>

namespace tenon::opt {

// Unified diff with `context` lines around each change ("" if equal). Shortest by Myers (1986) up to a bound on the
// number of changes; beyond it everything between the first and the last difference counts as changed.
std::string LineDiff(std::string_view before, std::string_view after, std::string_view before_name,
                     std::string_view after_name, int context = 2);

}  // namespace tenon::opt
