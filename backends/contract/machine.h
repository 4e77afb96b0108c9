// MachineModel: what code is planned for beyond its instruction set.
#pragma once

#include <string>

namespace tenon {

struct MachineModel {
  std::string name = "generic";  // in cache keys
  // Of the f32 multiply-adds a second that generated tiles reach, the share that the library's matrix product reaches: products
  // of 128 x 768 x 3072 and 1024^3 on two threads. MKL has no code of its own for 512-bit vectors of AMD's processors.
  double matmul_share = 1;
};

}  // namespace tenon
