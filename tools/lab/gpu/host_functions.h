// The functions that generated code calls, by the names it calls them. Of the emulator's own files only.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tenon::gpu {

// Index of a register of read.ptx.sreg as HostRegister knows it; -1: none of this name ("tid.x").
int RegisterIndex(const std::string& name);

// Signatures are LLVM's side in replace_intrinsics.cc and instrument.cc:
//   tenon_access(ptr, i32 site)                 an access of the site's size
//   tenon_access_range(ptr, i64 bytes, i32 site)
//   tenon_step(i32 site)                        a loop's next turn
//   tenon_enter(i32 site)                       a function begins
//   tenon_local(ptr, i64 bytes)                 an alloca begins to live
//   tenon_locals_gone(i32 n)
//   tenon_divide(i1 undefined, i32 site)
//   tenon_trap(i32 site)
//   tenon_register(i32) -> i32
//   tenon_barrier(i32 id, i32 count, i32 kind, i32 predicate, i1 aligned, i32 site) -> i32
//   tenon_warp(i32 op, i32 mask, i64 a, i32 b, i32 c, i32 site) -> i64
//   tenon_fragments(i32 op, i32 b, i32 c, ptr in, ptr out, i32 site)
//   tenon_copy(ptr to, ptr from, i32 bytes, i32 bytes that are read, i32 site), tenon_copies_commit()
//   tenon_copies_wait(i32 groups)               -1: for all, also those in no group
//   tenon_math_<intrinsic>
std::vector<std::pair<std::string, void*>> HostFunctions();

}  // namespace tenon::gpu
