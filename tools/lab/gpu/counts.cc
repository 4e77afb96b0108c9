// How the accesses of a block's warps fall upon banks of shared memory and sectors of global memory.
#include <algorithm>
#include <array>

#include "tools/lab/gpu/machine.h"

namespace tenon::gpu {
namespace {

constexpr uint32_t kBanks = 32, kSector = 32;

using Lane = std::pair<uintptr_t, uint32_t>;  // address, bytes

// Lanes are served by 128 bytes: all at once up to 4 bytes each, half a warp of 8, a quarter of 16. Each group takes as many turns
// as the busiest bank has words to give; the same word serves any number of lanes.
int64_t ExtraWavefronts(const std::vector<Lane>& lanes, uint32_t size) {
  const size_t group = size <= 4 ? 32 : size <= 8 ? 16 : 8;
  int64_t extra = 0;
  for (size_t piece = 0; piece < size; piece += 16) {
    for (size_t begin = 0; begin < lanes.size(); begin += group) {
      std::vector<uintptr_t> words;
      for (size_t k = begin; k < std::min(lanes.size(), begin + group); ++k) {
        const uintptr_t first = lanes[k].first + piece, last = std::min(lanes[k].first + size, first + 16);
        for (uintptr_t word = first / 4; word <= (last - 1) / 4; ++word) words.push_back(word);
      }
      std::sort(words.begin(), words.end());
      words.erase(std::unique(words.begin(), words.end()), words.end());
      std::array<int64_t, kBanks> in_bank{};
      for (uintptr_t word : words) ++in_bank[word % kBanks];
      extra += *std::max_element(in_bank.begin(), in_bank.end()) - 1;
    }
  }
  return extra;
}

// Sectors touched, and how many the distinct bytes would have filled.
std::pair<int64_t, int64_t> Sectors(std::vector<Lane> lanes) {
  std::sort(lanes.begin(), lanes.end());
  int64_t sectors = 0, bytes = 0;
  uintptr_t next_byte = 0, next_sector = 0;
  for (const auto& [address, size] : lanes) {
    const uintptr_t end = address + size, first = std::max(address, next_byte);
    if (first >= end) continue;
    bytes += static_cast<int64_t>(end - first);
    next_byte = end;
    const uintptr_t from = std::max(first / kSector, next_sector), to = (end - 1) / kSector + 1;
    if (from < to) sectors += static_cast<int64_t>(to - from);
    next_sector = std::max(next_sector, to);
  }
  return {sectors, (bytes + kSector - 1) / kSector};
}

}  // namespace

void Machine::CountBlock() {
  std::vector<Lane> lanes;
  for (size_t site = 0; site < recorded_.size(); ++site) {
    auto& by_thread = recorded_[site];
    SiteCounts& total = counts_->sites[site];
    for (size_t warp = 0; warp * 32 < by_thread.size(); ++warp) {
      const size_t end = std::min(by_thread.size(), warp * 32 + 32);
      for (size_t k = 0;; ++k) {
        lanes.clear();
        for (size_t t = warp * 32; t < end; ++t) {
          if (k < by_thread[t].size()) lanes.emplace_back(by_thread[t][k].address, by_thread[t][k].size);
        }
        if (lanes.empty()) break;
        ++total.warp_accesses;
        if (InShared(lanes[0].first)) {
          const int64_t extra = ExtraWavefronts(lanes, lanes[0].second);
          total.extra_wavefronts += extra;
          counts_->extra_wavefronts += extra;
        } else {
          const auto [touched, needed] = Sectors(lanes);
          total.sectors += touched;
          total.sectors_needed += needed;
          counts_->sectors += touched;
          counts_->sectors_needed += needed;
        }
      }
    }
    for (auto& t : by_thread) t.clear();
  }
}

}  // namespace tenon::gpu
