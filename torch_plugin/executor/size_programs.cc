#include "torch_plugin/executor/size_programs.h"

#include <ATen/Context.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

namespace tenon::torch_host {
namespace {

using Clock = std::chrono::steady_clock;

double NanosecondsSince(Clock::time_point began) { return std::chrono::duration<double, std::nano>(Clock::now() - began).count(); }

bool Takes(const SizePrograms::Sizes& sizes, const SizePrograms::Numbers& numbers) {
  for (size_t k = 0; k < sizes.size(); ++k) {
    if (sizes[k].has_value() && *sizes[k] != numbers[k]) return false;
  }
  return true;
}

size_t FreeNumbers(const SizePrograms::Sizes& sizes) { return static_cast<size_t>(std::count(sizes.begin(), sizes.end(), std::nullopt)); }

// True once in `count` times, a power of 2, by a coin: calls may come in any pattern of sizes.
bool OneOf(uint32_t count) {
  static thread_local uint64_t state = 0x9e3779b97f4a7c15;  // xorshift (Marsaglia 2003)
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (state >> 32 & (count - 1)) == 0;
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Of the sizes of which there are times of both sides, enough in all: the program's time over that of the one for all. Else nothing.
template <typename AllTimes>
std::optional<double> RatioOf(const AllTimes& all_times) {
  double program = 0, all = 0;
  size_t pairs = 0;
  for (const auto& t : all_times) {
    if (t.program.empty() || t.all.empty()) continue;
    const size_t both = std::min(t.program.size(), t.all.size());
    pairs += both;
    program += static_cast<double>(both) * Median(t.program);
    all += static_cast<double>(both) * Median(t.all);
  }
  if (pairs < static_cast<size_t>(SizePrograms::kRuns) || all <= 0) return std::nullopt;
  return program / all;
}

// Where no sizes come twice: a coin decided who took a call, so the means of both sides' logarithms may be compared. The upper end of the
// ratio's 95 % interval (normal approximation); nothing of fewer than `least` times a side.
template <typename AllTimes>
std::optional<double> RatioOfMeans(const AllTimes& all_times, double least) {
  struct Side {
    double count = 0, sum = 0, squares = 0;
    void Add(const std::vector<double>& times) {
      for (double ns : times) {
        const double log = std::log(ns);
        ++count, sum += log, squares += log * log;
      }
    }
    double mean() const { return sum / count; }
    double variance_of_mean() const { return std::max(0.0, squares / count - mean() * mean()) / count; }
  } program, all;
  for (const auto& t : all_times) program.Add(t.program), all.Add(t.all);
  if (program.count < least || all.count < least) return std::nullopt;
  return std::exp(program.mean() - all.mean() + 1.96 * std::sqrt(program.variance_of_mean() + all.variance_of_mean()));
}

}  // namespace

bool SizePrograms::Read(std::span<const Argument> arguments, Numbers* numbers) const {
  for (const Reader& reader : readers_) {
    const Argument& argument = arguments[static_cast<size_t>(reader.input)];
    if (reader.kind == Reader::Kind::kNumber) {
      if (argument.kind() != Argument::Kind::kNumber) return false;
      numbers->push_back(argument.number());
      continue;
    }
    const c10::TensorImpl* impl = argument.tensor();
    if (impl == nullptr || !IsPlain(impl)) return false;
    if (reader.kind == Reader::Kind::kOffset) {
      numbers->push_back(impl->storage_offset());
      continue;
    }
    if (reader.axis >= impl->dim()) return false;
    const auto axis = static_cast<size_t>(reader.axis);
    numbers->push_back(reader.kind == Reader::Kind::kSize ? impl->sizes()[axis] : impl->strides()[axis]);
  }
  return true;
}

Results SizePrograms::Run(Callee& all, std::span<Argument> arguments) {
  Numbers numbers;
  if (arguments.size() != all.inputs.size() || !Read(arguments, &numbers)) return all.RunThis(arguments);
  const uint64_t now = calls_.fetch_add(1, std::memory_order_relaxed);
  const std::shared_ptr<const Table> table = table_.load(std::memory_order_acquire);
  Entry* in_trial = nullptr;
  for (const std::shared_ptr<Entry>& entry : *table) {
    if (!Takes(entry->sizes, numbers)) continue;
    const bool kept = entry->kept.load(std::memory_order_relaxed);
    if (!kept) in_trial = entry.get();
    if (!kept && !OneOf(2)) break;
    entry->used.store(now, std::memory_order_relaxed);
    const std::shared_ptr<Callee> program = entry->cell->load(std::memory_order_acquire);
    const Clock::time_point began = kept ? Clock::time_point() : Clock::now();
    std::optional<Results> results = program->RunIfTaken(arguments);
    if (!results.has_value()) break;  // as if there were none; a trial waits, and runs out of patience
    if (!kept) Note(*entry, numbers, NanosecondsSince(began), /*by_program=*/true);
    return *std::move(results);
  }
  return RunAll(all, arguments, numbers, in_trial);
}

Results SizePrograms::RunAll(Callee& all, std::span<Argument> arguments, const Numbers& numbers, Entry* in_trial) {
  const bool timed = in_trial != nullptr || OneOf(kTimedOf);
  if (!timed) return all.RunThis(arguments);
  const Clock::time_point began = Clock::now();
  Results results = all.RunThis(arguments);
  const double ns = NanosecondsSince(began);
  if (in_trial != nullptr) {
    Note(*in_trial, numbers, ns, /*by_program=*/false);
  } else if (making_.load(std::memory_order_acquire)) {
    if (const std::shared_ptr<Entry> unused = Unused()) End(*unused, Verdict::kUnused, 0);
  } else if (std::optional<Sizes> hot = Heated(numbers, ns * kTimedOf)) {
    Try(*hot);
  }
  return results;
}

void SizePrograms::Note(Entry& entry, const Numbers& numbers, double ns, bool by_program) {
  std::optional<double> ratio;
  {
    const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    Trial& trial = entry.trial;
    if (!lock.owns_lock() || trial.ended) return;
    if (by_program && !std::exchange(trial.ran, true)) return;
    auto at = std::find_if(trial.times.begin(), trial.times.end(), [&](const Trial::Times& t) { return t.numbers == numbers; });
    if (at == trial.times.end()) at = trial.times.insert(at, {numbers, {}, {}});
    (by_program ? at->program : at->all).push_back(ns);
    ratio = RatioOf(trial.times);
    const bool over = calls_.load(std::memory_order_relaxed) - trial.began >= kPatience;
    if (!ratio.has_value() && over) ratio = RatioOfMeans(trial.times, /*least=*/4 * kRuns);
    if (!ratio.has_value() && !over) return;
    trial.ended = true;
    trial.times.clear();
  }
  if (!ratio.has_value()) return End(entry, Verdict::kUnused, 0);
  End(entry, *ratio <= bounds_.worth ? Verdict::kKept : Verdict::kDropped, *ratio);
}

void SizePrograms::End(Entry& entry, Verdict verdict, double ratio) {
  if (verdict == Verdict::kKept) {
    entry.kept.store(true, std::memory_order_relaxed);
  } else {
    Remove(&entry);
  }
  making_.store(false, std::memory_order_release);
  judged_(entry.sizes, verdict, ratio);
}

std::shared_ptr<SizePrograms::Entry> SizePrograms::Unused() {
  const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return nullptr;
  const std::shared_ptr<const Table> table = table_.load(std::memory_order_relaxed);
  const uint64_t now = calls_.load(std::memory_order_relaxed);
  for (const std::shared_ptr<Entry>& entry : *table) {
    if (entry->kept.load(std::memory_order_relaxed) || entry->trial.ended || now - entry->trial.began < kPatience) continue;
    entry->trial.ended = true;
    return entry;
  }
  return nullptr;
}

std::optional<SizePrograms::Sizes> SizePrograms::Heated(const Numbers& numbers, double ns) {
  const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || at::globalContext().deterministicAlgorithms()) return std::nullopt;
  auto at = std::find_if(heat_.begin(), heat_.end(), [&](const Heat& h) { return h.numbers == numbers; });
  if (at == heat_.end()) {
    if (heat_.size() == kRemembered) {
      heat_.erase(std::min_element(heat_.begin(), heat_.end(), [](const Heat& a, const Heat& b) { return a.last < b.last; }));
    }
    at = heat_.insert(heat_.end(), {numbers});
  }
  at->ns += ns;
  ++at->timed;
  at->last = calls_.load(std::memory_order_relaxed);
  if (std::optional<Sizes> constant = ConstantSizes(numbers, ns)) return constant;
  if (at->settled || at->timed < kComeAgain || at->ns < bounds_.hot_ns || making_.exchange(true, std::memory_order_acq_rel))
    return std::nullopt;
  at->settled = true;
  return Sizes(numbers.begin(), numbers.end());
}

std::optional<SizePrograms::Sizes> SizePrograms::ConstantSizes(const Numbers& numbers, double ns) {
  if (timed_++ == 0) {
    first_ = numbers;
    changed_.resize(numbers.size());
  }
  total_ns_ += ns;
  for (size_t k = 0; k < numbers.size(); ++k) {
    if (numbers[k] != first_[k]) changed_[k] = true;
  }
  const auto changed = static_cast<size_t>(std::count(changed_.begin(), changed_.end(), true));
  if (tried_constants_ || timed_ < 4 * kRuns || total_ns_ < bounds_.hot_ns || changed == 0 || changed == numbers.size() ||
      making_.exchange(true, std::memory_order_acq_rel)) {
    return std::nullopt;
  }
  tried_constants_ = true;
  Sizes sizes(numbers.begin(), numbers.end());
  for (size_t k = 0; k < sizes.size(); ++k) {
    if (changed_[k]) sizes[k].reset();
  }
  return sizes;
}

void SizePrograms::Try(const Sizes& sizes) {
  std::optional<Program> made;
  try {
    made = make_(sizes);
  } catch (...) {
    making_.store(false, std::memory_order_release);
    throw;
  }
  if (!made.has_value()) return making_.store(false, std::memory_order_release);
  auto entry = std::make_shared<Entry>();
  static_cast<Program&>(*entry) = *std::move(made);
  entry->trial.began = calls_.load(std::memory_order_relaxed);
  Insert(std::move(entry));
}

void SizePrograms::AddNeeded(Program program) {
  auto entry = std::make_shared<Entry>();
  static_cast<Program&>(*entry) = std::move(program);
  entry->needed = entry->kept = true;
  Insert(std::move(entry));
}

void SizePrograms::Insert(std::shared_ptr<Entry> entry) {
  std::vector<std::shared_ptr<Entry>> gone;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Table table = *table_.load(std::memory_order_relaxed);
    entry->used.store(calls_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    table.push_back(entry);
    while (!entry->needed) {  // room for it
      size_t count = 0;
      int64_t bytes = 0;
      auto oldest = table.end();
      for (auto e = table.begin(); e != table.end(); ++e) {
        if ((*e)->needed) continue;
        ++count;
        bytes += (*e)->bytes;
        if (*e != entry && (oldest == table.end() || (*e)->used.load() < (*oldest)->used.load())) oldest = e;
      }
      if (oldest == table.end() || (count <= kMost && bytes <= bounds_.most_bytes)) break;
      gone.push_back(*oldest);
      table.erase(oldest);
    }
    std::stable_sort(table.begin(), table.end(),
                     [](const auto& a, const auto& b) { return FreeNumbers(a->sizes) < FreeNumbers(b->sizes); });
    table_.store(std::make_shared<const Table>(std::move(table)), std::memory_order_release);
    for (const std::shared_ptr<Entry>& e : gone) {  // they may get hot again
      for (Heat& heat : heat_) {
        if (Takes(e->sizes, heat.numbers)) heat.settled = false, heat.ns = 0;
      }
    }
  }
  for (const std::shared_ptr<Entry>& e : gone) judged_(e->sizes, Verdict::kReplaced, 0);
}

void SizePrograms::Remove(const Entry* entry) {
  std::lock_guard<std::mutex> lock(mutex_);
  Table table = *table_.load(std::memory_order_relaxed);
  std::erase_if(table, [entry](const std::shared_ptr<Entry>& e) { return e.get() == entry; });
  table_.store(std::make_shared<const Table>(std::move(table)), std::memory_order_release);
}

}  // namespace tenon::torch_host
