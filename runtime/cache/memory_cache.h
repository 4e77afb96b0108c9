// MemoryCache: compiled executables by key, shared by equal graphs.
//
// A key is named parts (module, options, target, build); two keys are equal if all parts are. What is long
// is put in as its digest (backends/contract/digest.h), since an entry keeps its key.
// Bounded in entries and bytes: least recently used entries go first, and what is in use lives on with
// its users. The newest entry stays, however large it is.
// Single-flight: threads that ask for one key while it is being compiled wait for that compile; if
// it fails all of them get its error, and nothing is kept. kCancelled (the compiling thread's user
// interrupted it) is that thread's own: one of those who waited compiles.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/execute/executable.h"

namespace tenon {

class CacheKey {
 public:
  CacheKey& Add(std::string_view name, std::string_view value);
  const std::string& text() const { return text_; }  // unambiguous: names and lengths included
  // Names of the parts in which two keys differ.
  static std::vector<std::string> Differences(const CacheKey& a, const CacheKey& b);

 private:
  struct Part {
    size_t name, name_size, value, value_size;  // in text_
  };
  std::vector<Part> parts_;
  std::string text_;
};

class MemoryCache {
 public:
  using CompileFn = std::function<absl::StatusOr<std::shared_ptr<Executable>>()>;

  explicit MemoryCache(size_t capacity, int64_t max_bytes = INT64_MAX);
  ~MemoryCache();
  MemoryCache(const MemoryCache&) = delete;

  // `compile` runs without a lock held, may throw (the exception reaches the caller, the waiters
  // get kInternal, or kResourceExhausted where memory lacked), and must not ask this cache for the same key.
  absl::StatusOr<std::shared_ptr<Executable>> GetOrCompile(const CacheKey& key,
                                                           const CompileFn& compile);

  // Another name for what is kept under `keys`: of a graph that they were compiled for, found without making them. Kept as long as they.
  void AddAlias(const CacheKey& alias, const std::vector<CacheKey>& keys);
  // In the order of the keys, each a hit; empty if the alias is unknown or one of them is gone.
  std::vector<std::shared_ptr<Executable>> FindAlias(const CacheKey& alias);

  struct Counters {
    int64_t entries = 0, bytes = 0, hits = 0, misses = 0, waits = 0, compiles = 0, failures = 0,
            evictions = 0;
  };
  Counters counters() const;
  // Why the last miss missed: the parts in which its key differed from the nearest entry's, "" if
  // there was none to compare.
  std::string last_miss() const;
  void Clear();
  size_t capacity() const { return capacity_; }
  int64_t max_bytes() const { return max_bytes_; }

  // The process's own, for graphs of the plugin.
  static MemoryCache& Global();

  // Around fork().
  static void LockAll();
  static void UnlockAll(bool in_child);

 private:
  struct Entry {
    CacheKey key;
    std::shared_ptr<Executable> executable;
    int64_t bytes = 0;
  };
  struct Flight {
    bool done = false;
    std::condition_variable landed;  // a child's copy, which may have waiters, is never destroyed: the compiling thread's stack holds it
    absl::StatusOr<std::shared_ptr<Executable>> result = absl::UnknownError("not compiled");
  };
  using Order = std::list<Entry>;  // most recently used first

  bool AllKept(const std::vector<std::string>& keys) const;  // with mutex_
  std::string DiffToNearest(const CacheKey& key) const;  // with mutex_
  void Land(const CacheKey& key, const std::shared_ptr<Flight>& flight,
            absl::StatusOr<std::shared_ptr<Executable>> result) noexcept;

  const size_t capacity_;
  const int64_t max_bytes_;
  mutable std::mutex mutex_;  // held across a fork: runtime/fork.h. Guards what follows
  Order order_;
  // The standard's maps, which outlive an allocation that fails: absl's tables write where they may not after that.
  std::unordered_map<std::string_view, Order::iterator> index_;  // of the entries' own texts
  std::unordered_map<std::string, std::shared_ptr<Flight>> flights_;
  std::unordered_map<std::string, std::vector<std::string>> aliases_;  // texts of keys; some may be gone
  Counters counters_;
  std::string last_miss_;
};

}  // namespace tenon
