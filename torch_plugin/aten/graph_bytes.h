// A graph as bytes that say all that it means to a compile: neither names nor provenance. What its key is made of.
#pragma once

#include "hlo/byte_stream.h"
#include "torch_plugin/aten/graph.h"

namespace tenon::aten {

void AppendGraph(const Graph& graph, ByteStream* out);

}  // namespace tenon::aten
