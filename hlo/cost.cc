#include "hlo/cost.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "hlo/cost_ops.h"

namespace tenon {
namespace {

// A loop `for (i = start; i < limit; i += step)` over tuple element `k`, as JAX writes its loops.
std::optional<int64_t> CountedTrips(const Instruction& loop) {
  const Instruction* test = loop.attrs().get<Computation*>(Attr::kCondition)->root();
  const Instruction* init = loop.operand(0);
  if (test->opcode() != Opcode::kCompare || init->opcode() != Opcode::kTuple) return std::nullopt;
  auto element = [](const Instruction* i) -> int64_t {
    const bool of_state = i->opcode() == Opcode::kGetTupleElement && i->operand(0)->opcode() == Opcode::kParameter;
    return of_state ? i->tuple_index() : -1;
  };
  auto number = [](const Instruction* i) -> std::optional<int64_t> {
    while (i->opcode() == Opcode::kCopy || i->opcode() == Opcode::kConvert) i = i->operand(0);
    if (i->opcode() != Opcode::kConstant || !i->shape().is_scalar() || !IsIntegral(i->shape().element_type())) {
      return std::nullopt;
    }
    return i->literal().GetAsInt64(0);
  };
  const int64_t k = element(test->operand(0));
  const Instruction* body = loop.attrs().get<Computation*>(Attr::kBody)->root();
  if (k < 0 || test->comparison_direction() != "LT" || body->opcode() != Opcode::kTuple) return std::nullopt;
  const Instruction* next = body->operand(k);
  if (next->opcode() != Opcode::kAdd) return std::nullopt;
  const int64_t moving = element(next->operand(0)) == k ? 0 : 1;
  if (element(next->operand(moving)) != k) return std::nullopt;
  auto limit = number(test->operand(1));
  const int64_t bound = limit ? -1 : element(test->operand(1));  // or a limit that the state carries along
  if (bound >= 0 && element(body->operand(bound)) == bound) limit = number(init->operand(bound));
  const auto start = number(init->operand(k)), step = number(next->operand(1 - moving));
  if (!start || !limit || !step || *step <= 0) return std::nullopt;
  return std::max<int64_t>(0, (*limit - *start + *step - 1) / *step);
}

std::optional<int64_t> TripsOf(const Instruction& loop) {
  const std::string config = loop.backend_config();
  const size_t at = config.find("known_trip_count");
  const size_t digits = at == std::string::npos ? at : config.find_first_of("0123456789", at);
  if (digits != std::string::npos) return std::strtoll(config.c_str() + digits, nullptr, 10);
  return CountedTrips(loop);
}

bool SharesMemory(const Instruction& i) {
  switch (i.opcode()) {
    case Opcode::kTuple:
    case Opcode::kGetTupleElement:
    case Opcode::kBitcast:
    case Opcode::kReshape:
    case Opcode::kOptBarrier:
    case Opcode::kWhile:
    case Opcode::kDomain:
    case Opcode::kAddDependency:
    case Opcode::kAsyncUpdate:
      return true;
    default:
      return false;
  }
}

class Analysis {
 public:
  absl::StatusOr<ModuleCost> Run(const Module& module) {
    for (const Computation* c : module.computations()) {
      for (const Instruction* i : c->PostOrder()) {
        if (!HasConstantDims(i->shape())) {
          return absl::UnimplementedError(
              absl::StrCat(i->name(), " = ", i->shape().ToString(), ": cost analysis wants constant dimensions"));
        }
      }
    }
    const Computation& entry = *module.entry();
    for (const Instruction* p : entry.parameters()) result_.argument_bytes += BytesOf(p->shape());
    result_.output_bytes = BytesOf(entry.root()->shape());
    result_.total = Visit(entry);
    result_.peak_bytes = Peak(entry);
    Collect();
    return std::move(result_);
  }

 private:
  // One computation that runs as itself: each is looked at once, however often it is called.
  struct Visited {
    Cost cost;
    std::vector<InstructionCost> rows;
    std::vector<std::pair<const Computation*, double>> calls;  // and how often in one run
  };

  Cost Visit(const Computation& c) {
    if (auto it = visited_.find(&c); it != visited_.end()) return it->second.cost;
    Visited v;
    for (const Instruction* i : c.PostOrder()) {
      const Cost cost = CostOf(*i, &v);
      v.rows.push_back({i, cost, 1, BytesOf(i->shape())});
      Add(cost, 1, &v.cost);
    }
    order_.push_back(&c);
    return visited_.emplace(&c, std::move(v)).first->second.cost;
  }

  Cost Called(const Computation& c, double times, Visited* caller) {
    caller->calls.emplace_back(&c, times);
    return Scaled(Visit(c), times);
  }

  Cost CostOf(const Instruction& i, Visited* v) {
    switch (i.opcode()) {
      case Opcode::kCall:
        return Called(*i.to_apply(), 1, v);
      case Opcode::kAsyncStart:
        return Called(*i.fused_computation(), 1, v);
      case Opcode::kWhile: {
        const std::optional<int64_t> trips = TripsOf(i);
        if (!trips) ++result_.unknown_trips;
        const double n = static_cast<double>(trips.value_or(1));
        Cost cost = Called(*i.attrs().get<Computation*>(Attr::kCondition), n + 1, v);
        Add(Called(*i.attrs().get<Computation*>(Attr::kBody), n, v), 1, &cost);
        return cost;
      }
      case Opcode::kConditional: {
        const Computation* costliest = nullptr;
        double most = -1;
        for (const Computation* branch : i.called_computations()) {
          const Cost cost = Visit(*branch);
          const double weight = cost.flops + cost.transcendentals + cost.bytes;
          if (weight > most) costliest = branch, most = weight;
        }
        return costliest == nullptr ? Cost{} : Called(*costliest, 1, v);
      }
      default:
        return OwnCost(i);
    }
  }

  // Callers stand behind their callees in order_.
  void Collect() {
    absl::flat_hash_map<const Computation*, double> runs = {{order_.back(), 1.0}};
    for (size_t n = order_.size(); n-- > 0;) {
      Visited& v = visited_.at(order_[n]);
      const double times = runs[order_[n]];
      for (const auto& [callee, count] : v.calls) runs[callee] += times * count;
      for (InstructionCost& row : v.rows) {
        row.executions = times;
        result_.instructions.push_back(row);
      }
    }
  }

  // The most memory alive at once within `c`, its parameters and root included.
  double Peak(const Computation& c) {
    const std::vector<Instruction*> order = c.PostOrder();
    absl::flat_hash_map<const Instruction*, size_t> last_use;
    for (size_t n = order.size(); n-- > 0;) {
      const Instruction* i = order[n];
      const size_t own = i == c.root() ? order.size() : std::max(n, last_use[i]);
      last_use[i] = own;
      for (const Instruction* operand : i->operands()) {
        last_use[operand] = std::max(last_use[operand], SharesMemory(*i) ? own : n);
      }
    }
    std::vector<double> freed(order.size() + 1);
    double live = 0, peak = 0;
    for (const Instruction* p : c.parameters()) live += BytesOf(p->shape());  // the caller's, alive throughout
    for (size_t n = 0; n < order.size(); ++n) {
      const Instruction* i = order[n];
      if (i->opcode() != Opcode::kParameter && !SharesMemory(*i)) {
        const double bytes = BytesOf(i->shape());
        live += bytes;
        freed[last_use[i]] += bytes;
      }
      peak = std::max(peak, live + Inner(*i));
      live -= freed[n];
    }
    return std::max(peak, live);
  }

  // What a called computation needs beyond the arguments and results that its caller counts.
  double Inner(const Instruction& i) {
    switch (i.opcode()) {
      case Opcode::kCall:
      case Opcode::kConditional:
      case Opcode::kWhile:
      case Opcode::kAsyncStart:
        break;
      default:
        return 0;
    }
    double most = 0;
    for (const Computation* c : i.called_computations()) {
      auto it = inner_.find(c);
      if (it == inner_.end()) {
        // A while's state is one memory; a call's result is the caller's.
        double outside = i.opcode() == Opcode::kWhile ? 0 : BytesOf(c->root()->shape());
        for (const Instruction* p : c->parameters()) outside += BytesOf(p->shape());
        it = inner_.emplace(c, std::max(0.0, Peak(*c) - outside)).first;
      }
      most = std::max(most, it->second);
    }
    return most;
  }

  ModuleCost result_;
  absl::flat_hash_map<const Computation*, Visited> visited_;
  std::vector<const Computation*> order_;
  absl::flat_hash_map<const Computation*, double> inner_;
};

// Not by StrFormat, which ends the process where there is no memory for its result.
std::string Text(double x) {
  char digits[32];
  return std::string(digits, std::to_chars(digits, digits + sizeof digits, x).ptr);
}

std::string Numbers(const Cost& c) {
  return absl::StrCat("\"flops\": ", Text(c.flops), ", \"transcendentals\": ", Text(c.transcendentals), ", \"bytes\": ", Text(c.bytes));
}

}  // namespace

absl::StatusOr<ModuleCost> AnalyzeCost(const Module& module) {
  if (module.entry() == nullptr) return absl::InvalidArgumentError("the module has no entry");
  return Analysis().Run(module);
}

std::string ToJson(const ModuleCost& cost) {
  std::string json = absl::StrCat("{\"total\": {", Numbers(cost.total), ", \"peak_bytes\": ", Text(cost.peak_bytes),
                                  ", \"argument_bytes\": ", Text(cost.argument_bytes), ", \"output_bytes\": ", Text(cost.output_bytes),
                                  ", \"unknown_trips\": ", cost.unknown_trips, "}, \"instructions\": [");
  const char* separator = "";
  for (const InstructionCost& i : cost.instructions) {  // names hold no quotes: the parser's identifiers
    absl::StrAppend(&json, separator, "{\"name\": \"", i.instruction->name(), "\", \"computation\": \"",
                    i.instruction->parent()->name(), "\", \"opcode\": \"", std::string(OpcodeName(i.instruction->opcode())), "\", ",
                    Numbers(i.cost), ", \"output_bytes\": ", Text(i.output_bytes), ", \"executions\": ", Text(i.executions), "}");
    separator = ", ";
  }
  return json + "]}";
}

std::string ToTable(const ModuleCost& cost, int64_t rows) {
  std::vector<InstructionCost> sorted = cost.instructions;
  auto weight = [](const InstructionCost& i) {
    return i.executions * (i.cost.flops + i.cost.transcendentals + i.cost.bytes);
  };
  std::stable_sort(sorted.begin(), sorted.end(), [&](const auto& a, const auto& b) { return weight(a) > weight(b); });
  std::string text = absl::StrFormat(
      "total: %.6g flops, %.6g transcendentals, %.6g bytes moved; peak memory %.6g bytes (arguments %.6g, output %.6g)\n",
      cost.total.flops, cost.total.transcendentals, cost.total.bytes, cost.peak_bytes, cost.argument_bytes,
      cost.output_bytes);
  if (cost.unknown_trips > 0) absl::StrAppend(&text, cost.unknown_trips, " loops of unknown length counted as one trip\n");
  absl::StrAppend(&text, absl::StrFormat("%14s %14s %14s %10s  %s\n", "flops", "transcend.", "bytes", "runs", "instruction"));
  for (const InstructionCost& i : sorted) {
    if (rows-- == 0 || weight(i) == 0) break;
    absl::StrAppend(&text, absl::StrFormat("%14.6g %14.6g %14.6g %10.6g  %s %s\n", i.cost.flops, i.cost.transcendentals,
                                           i.cost.bytes, i.executions, std::string(OpcodeName(i.instruction->opcode())),
                                           i.instruction->name()));
  }
  return text;
}

}  // namespace tenon
