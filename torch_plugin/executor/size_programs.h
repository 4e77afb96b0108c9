// Programs of a graph for some of its sizes, beside the program for all of them: how a call finds its own, and which sizes get one
// (docs/architecture/sizes.md, tiers).
#pragma once

#include <c10/util/SmallVector.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "torch_plugin/executor/callee.h"

namespace tenon::torch_host {

class SizePrograms {
 public:
  // Where a call has a number that its sizes follow from.
  struct Reader {
    enum class Kind : uint8_t { kNumber, kSize, kStride, kOffset };
    Kind kind = Kind::kNumber;
    int64_t input = 0;
    int64_t axis = 0;  // of kSize and kStride
  };
  using Numbers = c10::SmallVector<int64_t, 8>;               // what the readers read in a call
  using Sizes = c10::SmallVector<std::optional<int64_t>, 8>;  // which calls a program takes, by the same readers; none: any number

  struct Program {
    Sizes sizes;
    std::shared_ptr<CalleeCell> cell;
    int64_t bytes = 0;
  };
  // Makes a program for sizes that are hot, or none. Called within the call that found them so, without the GIL.
  using Make = std::function<std::optional<Program>(const Sizes&)>;
  // What becomes of one: a trial ended, too few calls came to end it, or it made room for another.
  enum class Verdict : uint8_t { kKept, kDropped, kUnused, kReplaced };
  // ratio: of kKept and kDropped, the program's time over that of the one for all.
  using Judged = std::function<void(const Sizes&, Verdict verdict, double ratio)>;

  static constexpr size_t kMost = 7;           // programs of hot sizes
  static constexpr int kRuns = 8;              // of each side, in a trial
  static constexpr uint32_t kTimedOf = 4;      // one call in so many is timed
  static constexpr uint64_t kPatience = 1024;  // calls of the graph after which a trial ends in any case
  static constexpr int kComeAgain = 2;         // timed calls of sizes, at least, before they are hot
  static constexpr size_t kRemembered = 128;   // sets of sizes whose times are known

  struct Bounds {
    double hot_ns = 0;       // the time in the program for all sizes that makes sizes hot
    double worth = 0.97;     // the largest ratio of a program that stays
    int64_t most_bytes = 0;  // of all programs of hot sizes together
  };

  SizePrograms(std::vector<Reader> readers, Bounds bounds, Make make, Judged judged)
      : readers_(std::move(readers)), bounds_(bounds), make_(std::move(make)), judged_(std::move(judged)) {}

  // A call of the graph whose program for all sizes is `all`. Any thread, as Callee::Run.
  Results Run(Callee& all, std::span<Argument> arguments);

  // A program for sizes that `all` does not take: stays, without a trial, and isn't counted among the hot ones.
  void AddNeeded(Program program);

  const std::vector<Reader>& readers() const { return readers_; }

 private:
  struct Trial {
    struct Times {
      Numbers numbers;
      std::vector<double> program, all;  // ns
    };
    std::vector<Times> times;
    uint64_t began = 0;  // in calls of the graph
    bool ran = false;    // the program's first run is not counted
    bool ended = false;
  };
  struct Entry : Program {
    bool needed = false;
    std::atomic<uint64_t> used = 0;  // when it was last called, in calls of the graph
    std::atomic<bool> kept = false;
    Trial trial;  // under mutex_
  };
  using Table = std::vector<std::shared_ptr<Entry>>;
  struct Heat {
    Numbers numbers;
    double ns = 0;
    int timed = 0;  // calls
    uint64_t last = 0;
    bool settled = false;  // tried, or being made
  };

  bool Read(std::span<const Argument> arguments, Numbers* numbers) const;
  Results RunAll(Callee& all, std::span<Argument> arguments, const Numbers& numbers, Entry* in_trial);
  void Note(Entry& entry, const Numbers& numbers, double ns, bool by_program);
  void End(Entry& entry, Verdict verdict, double ratio);
  // The trial that has waited too long for its calls, if there is one.
  std::shared_ptr<Entry> Unused();
  // The sizes that are hot with this call, if a program is to be made for them: making_ is set then.
  std::optional<Sizes> Heated(const Numbers& numbers, double ns);
  std::optional<Sizes> ConstantSizes(const Numbers& numbers, double ns);
  // Makes it, and begins its trial.
  void Try(const Sizes& sizes);
  void Insert(std::shared_ptr<Entry> entry);
  void Remove(const Entry* entry);

  const std::vector<Reader> readers_;
  const Bounds bounds_;
  const Make make_;
  const Judged judged_;

  std::atomic<std::shared_ptr<const Table>> table_ = std::make_shared<const Table>();  // those with fewer free numbers first
  std::atomic<uint64_t> calls_ = 0;
  std::atomic<bool> making_ = false;  // a program, or its trial: one at a time

  std::mutex mutex_;  // no call waits for it but one that brings or ends a program: a time that can't be noted is lost
  std::vector<Heat> heat_;
  Numbers first_;              // of the first timed call
  std::vector<bool> changed_;  // by reader: another call had another number
  double total_ns_ = 0;
  uint64_t timed_ = 0;
  bool tried_constants_ = false;
};

}  // namespace tenon::torch_host
