// What a library function is: an op of HLO that is one call, computed by plain code on dense arrays instead of a generated
// kernel. The evaluator and the runtime's LibraryStep call the same functions, so an op has one definition.
//
// A Signature says everything but the data: it is made at compile time (describe.h), stored in programs and checked there by
// Function::check, after which `run` need not look at sizes again. Of functions that take symbols its sizes may be expressions; what runs
// makes one of a call's numbers and checks that, too. Arrays are row-major and dense, in the memory form of
// literals (hlo/literal.h). Functions are thread-safe; what a run keeps between calls is in RunState. Those that are worth it share
// their work over the threads that the call brings (parallel.h): the same bits for any number of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "hlo/check.h"
#include "hlo/library/parallel.h"
#include "hlo/shape.h"

namespace tenon::library {

struct Attribute {
  using Value = std::variant<int64_t, std::string, std::vector<int64_t>>;
  std::string name;
  Value value;

  Attribute(std::string n, Value v) : name(std::move(n)), value(std::move(v)) {}
  Attribute(const Attribute& other) : name(other.name) { value = other.value; }  // by assignment, as Json's (hlo/json.h)
  Attribute(Attribute&&) noexcept = default;
  Attribute& operator=(const Attribute&) = default;
  Attribute& operator=(Attribute&&) noexcept = default;
  ~Attribute() = default;
  bool operator==(const Attribute&) const = default;
};

// A few named values, in the order in which they were set.
class AttributeList {
 public:
  void Set(std::string name, int64_t value) { Put(std::move(name), value); }
  void Set(std::string name, std::string value) { Put(std::move(name), std::move(value)); }
  void Set(std::string name, std::vector<int64_t> value) { Put(std::move(name), std::move(value)); }
  // nullptr: absent, or of another kind.
  const int64_t* Int(std::string_view name) const { return Get<int64_t>(name); }
  const std::string* String(std::string_view name) const { return Get<std::string>(name); }
  const std::vector<int64_t>* Ints(std::string_view name) const { return Get<std::vector<int64_t>>(name); }
  int64_t IntOr(std::string_view name, int64_t otherwise) const { return Int(name) != nullptr ? *Int(name) : otherwise; }

  const std::vector<Attribute>& all() const { return all_; }
  std::string ToString() const;  // {lower=1, fft_type="FFT", fft_length=[4,5]}
  bool operator==(const AttributeList&) const = default;

 private:
  template <typename T>
  void Put(std::string name, T value) {
    all_.push_back({std::move(name), std::move(value)});
  }
  template <typename T>
  const T* Get(std::string_view name) const {
    for (const Attribute& a : all_) {
      if (a.name == name) return std::get_if<T>(&a.value);
    }
    return nullptr;
  }
  std::vector<Attribute> all_;
};

struct Signature {
  std::string function;
  AttributeList attributes;
  std::vector<Shape> operands, results;  // arrays; static ones where the call is run
};

// What one run keeps of random numbers. Its beginning is fixed: equal runs draw equal numbers.
struct RunState {
  uint64_t rng_draws = 0;                  // blocks that rng has drawn
  uint64_t rng_state[2] = {0x7012395, 0};  // of rng-get-and-update-state
};

struct Call {
  const Signature& signature;
  absl::Span<const void* const> operands;
  absl::Span<void* const> results;  // overlap neither each other nor an operand
  char* scratch;                    // Function::scratch bytes, 64-byte aligned
  RunState& state;
  Parallel parallel = {};
};

struct Function {
  std::string_view name;
  absl::Status (*check)(const Signature&);
  int64_t (*scratch)(const Signature&);  // of a signature that was checked; nullptr: none
  absl::Status (*run)(const Call&);
  bool takes_symbols = false;  // `check` takes sizes that are expressions, and refuses what is wrong for all of their values
};

// nullptr: no such function.
const Function* FindFunction(std::string_view name);
// Known, static unless it takes symbols, and what the function's own check says.
absl::Status CheckSignature(const Signature& signature);
// Bytes, of a checked signature of static sizes.
int64_t ScratchBytes(const Signature& signature);

// "fft(c64[4]) -> (c64[4])"
std::string ToString(const Signature& signature);
absl::Status Invalid(const Signature& signature, std::string_view what);

// Hands out a call's scratch, each piece 64-byte aligned.
class Scratch {
 public:
  Scratch(const Call& call) : at_(call.scratch), end_(call.scratch + ScratchBytes(call.signature)) {}
  template <typename T>
  T* Take(int64_t count) {
    char* taken = at_;
    at_ += Bytes<T>(count);
    TENON_CHECK(at_ <= end_, "a library function took more scratch than it said");
    return reinterpret_cast<T*>(taken);
  }
  template <typename T>
  static int64_t Bytes(int64_t count) {
    return (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
  }

 private:
  char *at_, *end_;
};

// The table, by file.
absl::Span<const Function> CustomCallFunctions();
absl::Span<const Function> FftFunctions();
absl::Span<const Function> LapackFunctions();
absl::Span<const Function> LapackLibraryFunctions();
absl::Span<const Function> LinalgFunctions();
absl::Span<const Function> RaggedFunctions();
absl::Span<const Function> RandomFunctions();
absl::Span<const Function> SortFunctions();

}  // namespace tenon::library
