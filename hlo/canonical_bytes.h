// A module as bytes that say all that it means and nothing else (no names, no metadata): two modules have the same if their canonical
// texts are equal.
#pragma once

#include <functional>

#include "hlo/attributes.h"
#include "hlo/byte_stream.h"
#include "hlo/module.h"

namespace tenon {

void AppendModule(const Module& module, ByteStream* out);
// With what it calls in turn.
void AppendComputation(const Computation& computation, ByteStream* out);
// `add`: what stands for a computation that is called.
void AppendAttribute(Attr attr, const AttrValue& value, const std::function<void(const Computation*)>& add, ByteStream* out);
// Not part of what an instruction means.
bool IsRemark(Attr attr);

}  // namespace tenon
