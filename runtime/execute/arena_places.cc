#include "runtime/execute/arena_places.h"

#include <algorithm>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "hlo/check.h"
#include "runtime/guarded_memory.h"
#include "runtime/program/dim_program.h"

namespace tenon {

int32_t PlacedValues::SizeOf(SizeRef bytes) {
  const auto size = std::find(sizes.begin(), sizes.end(), bytes);
  const auto at = static_cast<int32_t>(size - sizes.begin());
  if (size == sizes.end()) sizes.push_back(bytes);
  return at;
}

void PlacedValues::Add(int32_t value, const Value& v) {
  size_of.push_back(SizeOf(v.bytes));
  values.push_back(value);
  lives.push_back(v.life);
}

void PlacedValues::AddLender(const Value& output) {
  lenders.push_back({static_cast<int32_t>(output.index), SizeOf(output.bytes), output.life.first});
}

absl::StatusOr<const ArenaPlaces*> PlaceMemory::Find(absl::Span<const int64_t> dims) {
  sizes_.clear();
  for (SizeRef size : values_.sizes) sizes_.push_back(Resolve(size, dims));
  if (!known_.empty() && known_.front().sizes == sizes_) return &known_.front().places;
  const size_t hash = absl::HashOf(sizes_);
  const auto known = std::find_if(known_.begin(), known_.end(), [&](const Known& k) { return k.hash == hash && k.sizes == sizes_; });
  if (known != known_.end()) {
    known_.splice(known_.begin(), known_, known);
    return &known_.front().places;
  }
  TENON_ASSIGN_OR_RETURN(ArenaPlaces places, Place());
  if (known_.size() == kMostSets) known_.pop_back();
  known_.push_front({hash, sizes_, std::move(places)});
  return &known_.front().places;
}

absl::StatusOr<ArenaPlaces> PlaceMemory::Place() const {
  constexpr int64_t kMost = int64_t{1} << 62;
  std::vector<int64_t> bytes;
  int64_t sum = 0;
  for (const int32_t size : values_.size_of) {
    bytes.push_back(sizes_[size]);
    if (bytes.back() < 0 || bytes.back() > kMost - sum) {
      return absl::InvalidArgumentError(absl::StrCat("the size of an intermediate result comes out as ", bytes.back()));
    }
    sum += bytes.back();
  }
  std::vector<LentMemory> lent;
  for (const PlacedValues::Lender& l : values_.lenders) lent.push_back({sizes_[l.size_of], l.until});
  ArenaPlaces places = PlaceBuffers(values_.lives, bytes, lent, /*again=*/0);
  if (GuardOfEnvironment() != MemoryGuard::kOff) TENON_CHECK(LieApart(values_.lives, bytes, places, lent), "arena values meet");
  return places;
}

}  // namespace tenon
