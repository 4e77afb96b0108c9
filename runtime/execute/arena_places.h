// ArenaPlaces of a frame: where the arena values lie whose sizes are expressions (Value::life), for the sizes of a call. Sizes that are
// new are placed (hlo/arena.h); the places of some sets of sizes are remembered, so that a call with one of those looks them up.
#pragma once

#include <cstdint>
#include <list>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "hlo/arena.h"
#include "runtime/program/program.h"

namespace tenon {

// Of one arena: which values each call places.
struct PlacedValues {
  std::vector<int32_t> values;
  std::vector<BufferLife> lives;  // by value
  std::vector<SizeRef> sizes;     // that occur, each once
  std::vector<int32_t> size_of;   // by value: index into sizes
  struct Lender {
    int32_t output;
    int32_t size_of;  // index into sizes
    int32_t until;
  };
  std::vector<Lender> lenders;

  void Add(int32_t value, const Value& v);
  void AddLender(const Value& output);

 private:
  int32_t SizeOf(SizeRef bytes);
};

// Not thread-safe: each frame has its own.
class PlaceMemory {
 public:
  static constexpr size_t kMostSets = 64;  // the one that was wanted least recently goes first

  explicit PlaceMemory(const PlacedValues* values) : values_(*values) {}
  // By `values`, `lent` by `lenders`. Valid until the next call; the same object as the last call's where the sizes are the same.
  // `dims`: of the dim program.
  // Error: a size is negative, or all together are beyond what memory there is.
  absl::StatusOr<const ArenaPlaces*> Find(absl::Span<const int64_t> dims);

 private:
  struct Known {
    size_t hash = 0;
    std::vector<int64_t> sizes;
    ArenaPlaces places;
  };
  absl::StatusOr<ArenaPlaces> Place() const;

  const PlacedValues& values_;
  std::vector<int64_t> sizes_;  // of this call
  std::list<Known> known_;      // as they were wanted, the last first
};

}  // namespace tenon
