// What lowering says of a call of the framework's operator, custom-call "aten.*": an attribute of the instruction. In text it is the JSON
// object of backend_config, {"args":"(%0, [1, 2])","rule":"owned","reason":"..."}; nothing but the text's parser and printer knows that
// form. An object in text that is not exactly as it would be printed stays text, and ReadCallSite tells what is wrong with it, or takes it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "hlo/dim/dim.h"
#include "hlo/framework_arg.h"

namespace tenon {

enum class Effect : uint8_t { kPure, kRandom, kMutates, kHostRead, kError };
enum class ResultRule : uint8_t {
  kOut,    // an out= overload: writes into `results`' memory
  kOwned,  // the operator allocates; result i goes to slots[i], released at last use
  kView,   // as kOwned, but the result may alias an operand's memory: never released before that
           // operand
};

// Of a call that writes operands: the leaf of its result that is what the operand holds when it is done. The call is a function all the
// same: it is run on a copy, or where the operand's old value dies.
struct WrittenOperand {
  int64_t leaf = 0, operand = 0;
  bool operator==(const WrittenOperand&) const = default;
};

struct FrameworkCallSite {
  std::vector<FrameworkArg> args;  // the schema's whole positional list; kTensor: i is the instruction's operand
  ResultRule rule = ResultRule::kOwned;
  bool total = false;  // it gives a result whatever its operands' values are: it fails for want of memory only
  Effect effect = Effect::kPure;
  // Where some results are None (undefined tensors): how many there are, and which of them are the leaves of the shape.
  std::optional<int64_t> num_results;
  std::vector<int64_t> results;
  std::optional<std::vector<std::vector<Dim>>> strides;  // per leaf, where the layout cannot say it
  std::vector<WrittenOperand> writes;
  std::string reason;                                    // why it is no HLO
  bool operator==(const FrameworkCallSite&) const = default;
};

// A shared, constant call site: copies of an instruction have the same. Compares by value.
class FrameworkCallRef {
 public:
  explicit FrameworkCallRef(FrameworkCallSite site) : site_(std::make_shared<const FrameworkCallSite>(std::move(site))) {}
  const FrameworkCallSite& operator*() const { return *site_; }
  const FrameworkCallSite* operator->() const { return site_.get(); }
  friend bool operator==(const FrameworkCallRef& a, const FrameworkCallRef& b) { return a.site_ == b.site_ || *a.site_ == *b.site_; }

 private:
  std::shared_ptr<const FrameworkCallSite> site_;
};

// The JSON object of the text.
std::string ToString(const FrameworkCallSite& site);
// InvalidArgument: no object of a call site. The message says what is wrong, "" if it has no "args" at all.
absl::StatusOr<FrameworkCallSite> ReadCallSite(std::string_view json);

}  // namespace tenon
