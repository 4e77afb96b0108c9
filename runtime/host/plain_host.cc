#include "runtime/host/plain_host.h"

#include <cstring>
#include <string>

#include "runtime/host/functions.h"
#include "runtime/host/plain_matmul.h"

namespace tenon {
namespace {

void* Prepare(void*, const TenonOpSpec* spec, char** error) {
  static bool product = false, product_and_bias = true;  // the handles: is there a bias?
  const bool known = spec->overload == HostFunctionName(HostFunction::kMatmul);
  if (known && HostTakes(HostFunction::kMatmul, static_cast<PrimitiveType>(spec->results[0].dtype))) {
    return spec->num_operands == 3 ? &product_and_bias : &product;
  }
  *error = strdup(known ? "a dot of a type that generated code is for" : "a framework operator; without a framework only dots can be run");
  return nullptr;
}

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
    h.functions = kPlainFunctions;
    return h;
  }();
  return &host;
}

}  // namespace tenon
