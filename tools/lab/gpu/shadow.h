// What the detectors keep beside memory: which bytes have been written, and who touched each last. Of the emulator's own files only.
//
// Time is a number that grows with each start of a block and with each barrier, never back. An access leaves a *stamp*: time, thread of
// its block, site, whether atomic. Two accesses are ordered if the time of the first lies before what the second one's thread has
// synchronized with (Order); else they are concurrent, and a race where one of them writes and not both are atomic.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tenon::gpu {

// A stamp's bits, from the lowest: atomic 1, site 15, thread 10, time 37; the highest is a cell's (kSplit). 0: never.
namespace stamp {
inline constexpr uint64_t kAtomic = 1, kSplit = uint64_t{1} << 63;
inline constexpr uint32_t kSites = (1 << 15) - 1;  // this site and all behind it are told as "elsewhere"
inline uint64_t Make(uint64_t time, uint32_t thread, uint32_t site, bool atomic) {
  return time << 26 | uint64_t{thread} << 16 | uint64_t{site < kSites ? site : kSites} << 1 | (atomic ? kAtomic : 0);
}
inline uint64_t Time(uint64_t s) { return (s & ~kSplit) >> 26; }
inline uint32_t Thread(uint64_t s) { return static_cast<uint32_t>(s >> 16) & 1023; }
inline uint32_t Site(uint64_t s) { return static_cast<uint32_t>(s >> 1) & kSites; }
}  // namespace stamp

// The last write, the last read, and one more read since that write, of another warp than the last if there was one: enough to find
// some concurrent reader of whatever thread writes next, unless barriers of part of a warp are involved.
struct AccessCell {
  uint64_t write, read, other_read;
};

// Of a range of memory; lazily backed, all zero at first. Four bytes that were always touched together share words[byte / 4]; once they
// were not, that cell has kSplit set in `write`, and each byte has a cell of its own.
struct Shadow {
  uint8_t* written = nullptr;  // by byte: 0 or 1
  AccessCell* words = nullptr;
  AccessCell* bytes = nullptr;

  static Shadow Map(size_t size);
  void Unmap(size_t size);
  // As never touched; pages that lie wholly inside are given back.
  void Forget(size_t offset, size_t size);
};

// What is ordered before an access of one thread.
struct Order {
  uint64_t since = 0;                // what came before is of another launch (global memory) or of another block (shared memory)
  uint64_t block_start = 0;          // what came between is of another block
  uint64_t barrier = 0;              // the block's last barrier
  uint64_t warp = 0;                 // the last barrier of the thread's whole warp
  const uint64_t* clocks = nullptr;  // by thread from `first` on: what came before is ordered; barriers of part of a warp or block
  uint32_t first = 0, width = 0;
  uint32_t thread = 0;
};

struct Conflict {
  uint64_t with = 0;  // a stamp; 0: none
  bool with_write = false;
  size_t offset = 0;
};
// Notes an access to [offset, offset + size) as `me`.
Conflict Touch(const Shadow& shadow, size_t offset, size_t size, uint64_t me, bool write, const Order& order);

// The first byte of [offset, offset + size) that was never written, or offset + size.
size_t FirstUnwritten(const Shadow& shadow, size_t offset, size_t size);

}  // namespace tenon::gpu
