// PTX as NVPTX writes it, that ptxas (of CUDA 13.0, and in its driver; seen on sm_90) makes something else of, written so that it does not.
#pragma once

#include <string>
#include <string_view>

namespace tenon::gpu {

// * A store of the low part of a register whose last value was a float's: ptxas converts the float to an integer (F2I) instead of cutting
//   it. NVPTX stores so what truncates the bits of a float (a bitcast-convert to a narrower type). The part is cut first.
// * abs.s16, neg.s16 and 0 - x of -32768, the result read as a signed number: 32768, as in a wider register. They are computed in 32 bits
//   and cut.
// * max(max(x, -y), z) of s32, and min: the negation is lost (VIMNMX3 of sm_90 and sm_100; the same for s16). Every -x is ~(x - 1).
std::string RepairPtx(std::string_view ptx);

}  // namespace tenon::gpu
