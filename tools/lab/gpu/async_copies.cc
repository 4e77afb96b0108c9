// cp.async. Until a thread has waited for its copies their destination is uninitialised: who reads it too early is told so.
#include <cstring>

#include "tools/lab/gpu/machine.h"

namespace tenon::gpu {

void Machine::BeginCopy(const AsyncCopy& copy) {
  Access(copy.from, copy.from_bytes, copy.site + 1);
  Access(copy.to, copy.bytes, copy.site);
  std::memset(image_->shared->shadow().written + (copy.to - shared_base_), 0, copy.bytes);
  std::memset(reinterpret_cast<void*>(copy.to), 0xa5, copy.bytes);
  current_->copies.push_back(copy);
}

void Machine::CommitCopies() {
  size_t grouped = 0;
  for (size_t n : current_->groups) grouped += n;
  current_->groups.push_back(current_->copies.size() - grouped);
}

void Machine::WaitForCopies(size_t groups) {
  auto& g = current_->groups;
  if (g.size() <= groups) return;
  size_t n = 0;
  for (size_t k = 0; k < g.size() - groups; ++k) n += g[k];
  g.erase(g.begin(), g.end() - static_cast<ptrdiff_t>(groups));
  FinishCopies(n);
}

void Machine::WaitForAllCopies() {
  current_->groups.clear();
  FinishCopies(current_->copies.size());
}

void Machine::FinishCopies(size_t n) {
  auto& copies = current_->copies;
  const Shadow& shadow = image_->shared->shadow();
  for (size_t k = 0; k < n; ++k) {
    const AsyncCopy& c = copies[k];
    const size_t offset = c.to - shared_base_;
    CheckRace(shadow, offset, c.bytes, image_->sites[c.site], c.site, true);
    std::memcpy(reinterpret_cast<void*>(c.to), reinterpret_cast<const void*>(c.from), c.from_bytes);
    std::memset(reinterpret_cast<char*>(c.to) + c.from_bytes, 0, c.bytes - c.from_bytes);
    std::memset(shadow.written + offset, 1, c.bytes);
  }
  copies.erase(copies.begin(), copies.begin() + static_cast<ptrdiff_t>(n));
}

}  // namespace tenon::gpu
