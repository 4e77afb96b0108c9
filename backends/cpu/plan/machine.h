// MachineModel: what code is planned for beyond its instruction set. A table by the processor's name, so that two machines of one kind make
// the same choices.
#pragma once

#include <string>
#include <string_view>

namespace tenon {

struct MachineModel {
  std::string name = "generic";  // in cache keys
  // Of the f32 multiply-adds a second that generated tiles reach, the share that the library's matrix product (MKL) reaches: products
  // of 128 x 768 x 3072 and 1024^3 on two threads. MKL has no code of its own for 512-bit vectors of AMD's processors.
  double matmul_share = 1;
};

// `processor`: LLVM's name for it. `isa`: as in CpuTarget.
MachineModel MachineOf(std::string_view processor, std::string_view isa);

}  // namespace tenon
