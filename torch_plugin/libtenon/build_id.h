// Which compiler this is: part of every cache key.
#pragma once

#include <string>

namespace tenon {

const std::string& BuildId();

}  // namespace tenon
