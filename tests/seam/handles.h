// Owners of what the C seam gives.
#pragma once

#include <memory>
#include <string>

#include "runtime/tenon_c.h"

namespace seam {

struct GraphDeleter {
  void operator()(TenonGraph* g) const { tenon_graph_release(g); }
};
using GraphPtr = std::unique_ptr<TenonGraph, GraphDeleter>;
struct ExecutableDeleter {
  void operator()(TenonExecutable* e) const { tenon_executable_release(e); }
};
using ExecutablePtr = std::unique_ptr<TenonExecutable, ExecutableDeleter>;

// Takes a text that an entry gave; NULL is none.
inline std::string Taken(char* text) {
  const std::string all = text == nullptr ? "" : text;
  tenon_string_free(text);
  return all;
}

}  // namespace seam
