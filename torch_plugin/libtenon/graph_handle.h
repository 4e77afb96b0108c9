// What a TenonGraph* points at.
#pragma once

#include "torch_plugin/aten/graph_builder.h"

struct TenonGraph {
  explicit TenonGraph(std::string name) : builder(std::move(name)) {}
  tenon::aten::GraphBuilder builder;
};
