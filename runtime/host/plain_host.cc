#include "runtime/host/plain_host.h"

#include <cstring>
#include <string>

#include "runtime/host/plain_matmul.h"

namespace tenon {
namespace {

void* Prepare(void*, const TenonOpSpec* spec, char** error) {
  static bool product = false, product_and_bias = true;  // the handles: is there a bias?
  const std::string op = spec->overload;
  const bool known = op == "aten.mm.out" || op == "aten.bmm.out" || op == "aten.addmm.out";
  if (known && HostMultiplies(static_cast<PrimitiveType>(spec->results[0].dtype))) {
    return op == "aten.addmm.out" ? &product_and_bias : &product;
  }
  *error = strdup(known ? "a dot of a type that generated code is for" : "a framework operator; without a framework only dots can be run");
  return nullptr;
}

// The compiler's own call sites: mm(%0, %1), addmm(%2, %0, %1, 1, 1).
int Call(void*, TenonOpCall* call) {
  const bool bias = *static_cast<const bool*>(call->op);
  PlainMatmul(call->operands[0], call->operands[1], bias ? &call->operands[2] : nullptr, call->results[0]);
  return 0;
}

}  // namespace

const TenonHost* PlainHost() {
  static const TenonHost host = [] {
    TenonHost h = *DefaultHost();
    h.op_prepare = Prepare;
    h.op_call = Call;
    return h;
  }();
  return &host;
}

}  // namespace tenon
