// Which compiler this is: part of every cache key.
#pragma once

#include <string>

namespace tenon {

std::string BuildId();

}  // namespace tenon
