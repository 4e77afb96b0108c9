#include "runtime/cache/memory_cache.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/fork.h"

namespace tenon {
namespace {

struct Registry {
  std::mutex mutex;
  std::set<MemoryCache*> caches;  // their locks are taken in one order at every fork
};
Registry& TheRegistry() {
  static Registry* registry = new Registry;
  return *registry;
}

// What an entry keeps while nobody runs it: its code (the object and, loaded, about as much again), literals and texts.
int64_t SizeOf(const CacheKey& key, const Executable& executable) {
  const Program& p = executable.program();
  size_t bytes = key.text().size() + 2 * static_cast<size_t>(p.code_bytes()) + p.report.size();
  for (const std::string& remark : p.remarks) bytes += remark.size();
  for (const KernelSpec& k : p.kernels) bytes += k.symbol.size() + k.plan.size() + k.fingerprint.size();
  for (const Region& region : p.regions) bytes += region.steps.size() * sizeof(Step);
  for (const ConstantSpec& c : p.constants) {
    if (c.kind == ConstantSpec::Kind::kLiteral) bytes += c.literal.size_bytes();
  }
  return static_cast<int64_t>(bytes);
}

// What is being thrown, as a Status; without a message where there is no memory for one.
absl::Status Thrown() noexcept {
  try {
    try {
      throw;
    } catch (const std::bad_alloc&) {
      return absl::Status(absl::StatusCode::kResourceExhausted, "");
    } catch (const std::exception& e) {
      return absl::InternalError(e.what());
    } catch (...) {
      return absl::InternalError("the compile threw something unknown");
    }
  } catch (...) {
    return absl::Status(absl::StatusCode::kResourceExhausted, "");
  }
}

}  // namespace

CacheKey& CacheKey::Add(std::string_view name, std::string_view value) {
  Part part = {text_.size(), name.size(), 0, value.size()};
  absl::StrAppend(&text_, absl::string_view(name.data(), name.size()), ":", value.size(), ":");
  part.value = text_.size();
  absl::StrAppend(&text_, absl::string_view(value.data(), value.size()), ";");
  parts_.push_back(part);
  return *this;
}

std::vector<std::string> CacheKey::Differences(const CacheKey& a, const CacheKey& b) {
  const auto name = [](const CacheKey& key, size_t k) {
    return std::string_view(key.text_).substr(key.parts_[k].name, key.parts_[k].name_size);
  };
  const auto value = [](const CacheKey& key, size_t k) {
    return std::string_view(key.text_).substr(key.parts_[k].value, key.parts_[k].value_size);
  };
  std::vector<std::string> names;
  for (size_t k = 0; k < std::max(a.parts_.size(), b.parts_.size()); ++k) {
    const bool in_a = k < a.parts_.size(), in_b = k < b.parts_.size();
    if (in_a && in_b && name(a, k) == name(b, k) && value(a, k) == value(b, k)) continue;
    names.emplace_back(in_a ? name(a, k) : name(b, k));
  }
  return names;
}

MemoryCache::MemoryCache(size_t capacity, int64_t max_bytes)
    : capacity_(std::max<size_t>(capacity, 1)), max_bytes_(max_bytes) {
  InstallForkHandlers();
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  registry.caches.insert(this);
}

MemoryCache::~MemoryCache() {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  registry.caches.erase(this);
}

absl::StatusOr<std::shared_ptr<Executable>> MemoryCache::GetOrCompile(const CacheKey& key,
                                                                      const CompileFn& compile) {
  std::shared_ptr<Flight> flight;
  {
    std::unique_lock lock(mutex_);
    while (true) {
      if (const auto found = index_.find(key.text()); found != index_.end()) {
        ++counters_.hits;
        order_.splice(order_.begin(), order_, found->second);
        return found->second->executable;
      }
      const auto found = flights_.find(key.text());
      if (found == flights_.end()) break;
      ++counters_.waits;
      flight = found->second;
      flight->landed.wait(lock, [&] { return flight->done; });
      if (!absl::IsCancelled(flight->result.status())) return flight->result;
    }
    ++counters_.misses;
    ++counters_.compiles;
    last_miss_ = DiffToNearest(key);
    flight = flights_[key.text()] = std::make_shared<Flight>();
  }
  try {
    absl::StatusOr<std::shared_ptr<Executable>> result = compile();
    Land(key, flight, result);
    return result;
  } catch (...) {
    Land(key, flight, Thrown());
    throw;
  }
}

bool MemoryCache::AllKept(const std::vector<std::string>& keys) const {
  return std::all_of(keys.begin(), keys.end(), [&](const std::string& key) { return index_.contains(key); });
}

void MemoryCache::AddAlias(const CacheKey& alias, const std::vector<CacheKey>& keys) {
  std::vector<std::string> texts;
  for (const CacheKey& key : keys) texts.push_back(key.text());
  const std::lock_guard lock(mutex_);
  if (aliases_.size() >= 4 * capacity_) {
    std::erase_if(aliases_, [&](const auto& entry) { return !AllKept(entry.second); });
    if (aliases_.size() >= 4 * capacity_) aliases_.clear();
  }
  aliases_[alias.text()] = std::move(texts);
}

std::vector<std::shared_ptr<Executable>> MemoryCache::FindAlias(const CacheKey& alias) {
  std::vector<std::shared_ptr<Executable>> found;
  const std::lock_guard lock(mutex_);
  const auto keys = aliases_.find(alias.text());
  if (keys == aliases_.end()) return found;
  if (!AllKept(keys->second)) {
    aliases_.erase(keys);
    return found;
  }
  for (const std::string& key : keys->second) {
    const Order::iterator entry = index_.at(key);
    ++counters_.hits;
    order_.splice(order_.begin(), order_, entry);
    found.push_back(entry->executable);
  }
  return found;
}

void MemoryCache::Land(const CacheKey& key, const std::shared_ptr<Flight>& flight,
                       absl::StatusOr<std::shared_ptr<Executable>> result) noexcept {
  Order evicted;  // destroyed without the lock
  Order entry;
  if (result.ok()) {
    try {
      entry.push_back({key, *result, SizeOf(key, **result)});
    } catch (const std::bad_alloc&) {  // it is not kept
    }
  }
  const std::lock_guard lock(mutex_);
  flights_.erase(key.text());
  if (!result.ok()) ++counters_.failures;
  if (!entry.empty()) {
    try {
      index_[entry.front().key.text()] = entry.begin();
      counters_.bytes += entry.front().bytes;
      order_.splice(order_.begin(), entry);
    } catch (const std::bad_alloc&) {
    }
  }
  while (order_.size() > capacity_ || (counters_.bytes > max_bytes_ && order_.size() > 1)) {
    counters_.bytes -= order_.back().bytes;
    ++counters_.evictions;
    index_.erase(order_.back().key.text());
    evicted.splice(evicted.begin(), order_, std::prev(order_.end()));
  }
  flight->result = std::move(result);
  flight->done = true;
  flight->landed.notify_all();
}

std::string MemoryCache::DiffToNearest(const CacheKey& key) const {
  std::vector<std::string> nearest;
  for (const Entry& entry : order_) {
    std::vector<std::string> names = CacheKey::Differences(key, entry.key);
    if (nearest.empty() || names.size() < nearest.size()) nearest = std::move(names);
    if (nearest.size() == 1) break;
  }
  return absl::StrJoin(nearest, ", ");
}

MemoryCache::Counters MemoryCache::counters() const {
  const std::lock_guard lock(mutex_);
  Counters c = counters_;
  c.entries = static_cast<int64_t>(order_.size());
  return c;
}

std::string MemoryCache::last_miss() const {
  const std::lock_guard lock(mutex_);
  return last_miss_;
}

void MemoryCache::Clear() {
  Order dropped;
  const std::lock_guard lock(mutex_);
  dropped.swap(order_);
  index_.clear();
  aliases_.clear();
  counters_.bytes = 0;
}

MemoryCache& MemoryCache::Global() {
  static MemoryCache* cache = new MemoryCache(512, int64_t{512} << 20);
  return *cache;
}

void MemoryCache::LockAll() {
  Registry& registry = TheRegistry();
  registry.mutex.lock();
  for (MemoryCache* cache : registry.caches) cache->mutex_.lock();
}

void MemoryCache::UnlockAll(bool in_child) {
  Registry& registry = TheRegistry();
  for (MemoryCache* cache : registry.caches) {
    // The threads that were compiling exist in the parent only: nobody would ever finish these.
    if (in_child) cache->flights_.clear();
    cache->mutex_.unlock();
  }
  registry.mutex.unlock();
}

}  // namespace tenon
