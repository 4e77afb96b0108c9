#include "tools/lab/gpu/shadow.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "hlo/check.h"

namespace tenon::gpu {
namespace {

void* MapZeros(size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TENON_CHECK(p != MAP_FAILED, "no range of addresses for the emulator's shadow");
  madvise(p, bytes, MADV_DONTDUMP);
  return p;
}

void Zero(void* memory, size_t bytes) {
  constexpr uintptr_t kPage = 4096;
  const auto begin = reinterpret_cast<uintptr_t>(memory), end = begin + bytes;
  const uintptr_t first = (begin + kPage - 1) / kPage * kPage, last = end / kPage * kPage;
  if (first >= last) {
    std::memset(memory, 0, bytes);
    return;
  }
  std::memset(memory, 0, first - begin);
  madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
  std::memset(reinterpret_cast<void*>(last), 0, end - last);
}

bool Concurrent(uint64_t s, const Order& o) {
  const uint64_t time = stamp::Time(s);
  if (time < o.since) return false;
  if (time < o.block_start) return true;
  const uint32_t thread = stamp::Thread(s);
  if (time < o.barrier || thread == o.thread) return false;
  if (time < o.warp && thread / 32 == o.thread / 32) return false;
  return o.clocks == nullptr || thread - o.first >= o.width || time >= o.clocks[thread - o.first];
}

bool OtherWarp(uint64_t a, uint64_t b, const Order& o) {
  return stamp::Thread(a) / 32 != stamp::Thread(b) / 32 || (stamp::Time(a) < o.block_start) != (stamp::Time(b) < o.block_start);
}

void NoteRead(AccessCell& cell, uint64_t me, const Order& o) {
  if (cell.read == me) return;
  if (Concurrent(cell.read, o)) {
    const bool keeps = !OtherWarp(cell.read, me, o) && Concurrent(cell.other_read, o) && OtherWarp(cell.other_read, me, o);
    if (!keeps) cell.other_read = cell.read;
  }
  // A read that is ordered before this one may go: who is ordered behind this one is behind both.
  cell.read = me;
}

Conflict TouchCell(AccessCell& cell, uint64_t me, bool write, const Order& o) {
  const auto conflicts = [&](uint64_t s) { return Concurrent(s, o) && (s & me & stamp::kAtomic) == 0; };
  if (conflicts(cell.write)) return {cell.write, true};
  if (!write) {
    NoteRead(cell, me, o);
    return {};
  }
  if (conflicts(cell.read)) return {cell.read, false};
  if (conflicts(cell.other_read)) return {cell.other_read, false};
  cell = {me, 0, 0};
  return {};
}

}  // namespace

Shadow Shadow::Map(size_t size) {
  Shadow shadow;
  shadow.written = static_cast<uint8_t*>(MapZeros(size));
  shadow.words = static_cast<AccessCell*>(MapZeros(size / 4 * sizeof(AccessCell)));
  shadow.bytes = static_cast<AccessCell*>(MapZeros(size * sizeof(AccessCell)));
  return shadow;
}

void Shadow::Unmap(size_t size) {
  munmap(written, size);
  munmap(words, size / 4 * sizeof(AccessCell));
  munmap(bytes, size * sizeof(AccessCell));
}

void Shadow::Forget(size_t offset, size_t size) {
  Zero(written + offset, size);
  const size_t first = offset / 4, last = (offset + size + 3) / 4;
  Zero(words + first, (last - first) * sizeof(AccessCell));
  Zero(bytes + first * 4, (last - first) * 4 * sizeof(AccessCell));
}

Conflict Touch(const Shadow& shadow, size_t offset, size_t size, uint64_t me, bool write, const Order& order) {
  const size_t end = offset + size;
  while (offset < end) {
    AccessCell& word = shadow.words[offset / 4];
    const bool whole = offset % 4 == 0 && end - offset >= 4;
    if (whole && (word.write & stamp::kSplit) == 0) {
      if (Conflict c = TouchCell(word, me, write, order); c.with != 0) return {c.with, c.with_write, offset};
      offset += 4;
      continue;
    }
    if ((word.write & stamp::kSplit) == 0) {
      std::fill_n(shadow.bytes + offset / 4 * 4, 4, word);
      word.write |= stamp::kSplit;
    }
    const size_t stop = std::min(end, offset / 4 * 4 + 4);
    for (; offset < stop; ++offset) {
      if (Conflict c = TouchCell(shadow.bytes[offset], me, write, order); c.with != 0) return {c.with, c.with_write, offset};
    }
    if (whole && write) word = {me, 0, 0};
  }
  return {};
}

size_t FirstUnwritten(const Shadow& shadow, size_t offset, size_t size) {
  constexpr uint64_t kAll = 0x0101010101010101;
  const size_t end = offset + size;
  for (uint64_t eight; end - offset >= 8; offset += 8) {
    std::memcpy(&eight, shadow.written + offset, 8);
    if (eight != kAll) break;
  }
  if (uint32_t four; end - offset == 4) {
    std::memcpy(&four, shadow.written + offset, 4);
    if (four == static_cast<uint32_t>(kAll)) return end;
  }
  while (offset < end && shadow.written[offset] != 0) ++offset;
  return offset;
}

}  // namespace tenon::gpu
