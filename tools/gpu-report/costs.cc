#include "tools/gpu-report/costs.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "torch_plugin/aten/op_table.h"

namespace tenon::report {
namespace {

// Elements that are somewhere: what stride 0 repeats is one.
double Touched(const View& view) {
  if (view.value < 0) return 0;
  double elements = 1;
  for (size_t d = 0; d < view.dims.size(); ++d) {
    if (view.strides[d] != 0) elements *= static_cast<double>(std::max<SizeRef>(view.dims[d], 0));
    else if (view.dims[d] == 0) return 0;
  }
  return elements * ByteWidth(view.dtype);
}

double TouchedBy(const FrameworkStep& step) {
  double bytes = 0;
  std::set<std::tuple<int32_t, SizeRef, std::vector<SizeRef>>> seen;
  for (const std::vector<View>* views : {&step.operands, &step.results}) {
    for (const View& v : *views) {
      if (v.value >= 0 && seen.insert({v.value, v.byte_offset, v.strides}).second) bytes += Touched(v);
    }
  }
  return bytes;
}

double Elements(const View& view) {
  double n = 1;
  for (const SizeRef d : view.dims) n *= static_cast<double>(d);
  return n;
}

// Two products of queries with keys and with values; five in the backward.
double FrameworkFlops(const FrameworkStep& step) {
  const bool backward = absl::StrContains(step.overload, "backward");
  if (absl::StrContains(step.overload, "scaled_dot_product")) {
    const size_t q = backward ? 1 : 0;
    if (step.operands.size() < q + 3 || step.operands[q].dims.size() != 4) return 0;
    const double keys = static_cast<double>(step.operands[q + 1].dims[2]);
    return (backward ? 10 : 4) * Elements(step.operands[q]) * keys;
  }
  return 0;
}

double RateFor(PrimitiveType type, const Rates& rates) {
  if (type == PrimitiveType::kF16 || type == PrimitiveType::kBF16) return rates.half_flops_per_ns;
  return type == PrimitiveType::kF64 ? rates.flops_per_ns / 2 : rates.flops_per_ns;
}

class Counter {
 public:
  Counter(const Program& program, const Rates& rates) : program_(program), rates_(rates) {}

  Costs Run() {
    for (const Region& region : program_.regions) {
      for (const Step& step : region.steps) std::visit([&](const auto& body) { Count(step, body); }, step.body);
    }
    costs_.kernels = static_cast<int64_t>(kernels_.size());
    for (const Program::DeviceArena& arena : program_.device_arenas) costs_.arena_bytes += std::max<int64_t>(arena.bytes, 0);
    return costs_;
  }

 private:
  int32_t SpaceOf(const View& view) const { return view.value < 0 ? 0 : program_.values[static_cast<size_t>(view.value)].space; }
  int32_t SpaceOf(const FrameworkStep& step) const {
    for (const std::vector<View>* views : {&step.operands, &step.results}) {
      for (const View& v : *views) {
        if (SpaceOf(v) != 0) return SpaceOf(v);
      }
    }
    return 0;
  }
  void Busy(double bytes, double flops, PrimitiveType type) {
    costs_.busy_ns += std::max(bytes / rates_.bytes_per_ns, flops / RateFor(type, rates_));
  }

  void Count(const Step& step, const KernelStep& kernel) {
    const KernelSpec& spec = program_.kernels[static_cast<size_t>(kernel.kernel)];
    if (program_.code[static_cast<size_t>(spec.code)].space == 0) {
      ++costs_.host["kernel"];
      return;
    }
    ++costs_.launches;
    kernels_.insert(kernel.kernel);
    costs_.kernel_bytes += static_cast<double>(step.bytes);
    Busy(static_cast<double>(step.bytes), static_cast<double>(step.flops), PrimitiveType::kF32);
  }

  void Count(const Step& step, const FrameworkStep& call) {
    const double bytes = TouchedBy(call);
    if (SpaceOf(call) == 0) {
      ++costs_.host[call.overload];
      return;
    }
    const bool library = call.overload.starts_with("cublaslt.") || call.overload.starts_with("cudnn.");
    ++(library ? costs_.library : costs_.framework)[call.overload];
    (library ? costs_.library_bytes : costs_.framework_bytes) += bytes;
    const double flops = library ? static_cast<double>(step.flops) : FrameworkFlops(call);
    costs_.flops += flops;
    if (library) costs_.workspace_bytes = std::max(costs_.workspace_bytes, call.args.back().i);
    Busy(bytes, flops, call.operands.empty() ? PrimitiveType::kF32 : call.operands[0].dtype);
  }

  void Count(const Step&, const CopyStep& copy) {
    const int32_t from = SpaceOf(copy.from), to = SpaceOf(copy.to);
    const double bytes = Touched(copy.from) + Touched(copy.to);
    if (from == 0 && to == 0) {
      ++costs_.host["copy"];
    } else if (from == to) {
      ++costs_.copies;
      costs_.copy_bytes += bytes;
      Busy(bytes, 0, PrimitiveType::kF32);
    } else {
      ++costs_.host_copies;
      costs_.host_copy_bytes += bytes / 2;
    }
  }

  void Count(const Step&, const LibraryStep& call) { ++costs_.host[call.function]; }
  void Count(const Step&, const WhileStep&) { ++costs_.host["while"]; }
  void Count(const Step&, const ConditionalStep&) { ++costs_.host["conditional"]; }

  const Program& program_;
  const Rates& rates_;
  Costs costs_;
  std::set<int32_t> kernels_;
};

double BytesOf(const aten::Meta& meta) {
  if (meta.kind != aten::Meta::Kind::kTensor) return 0;
  double elements = 1;
  for (size_t d = 0; d < meta.sizes.size(); ++d) {
    if (KnownEqual(meta.sizes[d], 0)) return 0;
    if (!KnownEqual(meta.strides[d], 0)) elements *= static_cast<double>(Typical(meta.sizes[d]));
  }
  return elements * ByteWidth(meta.dtype);
}

// Its first operand is a table that it picks from.
bool Picks(std::string_view op) {
  for (const char* name : {"aten.embedding.", "aten.index_select.", "aten.index.Tensor", "aten.gather.", "aten._unsafe_index."}) {
    if (op.starts_with(name)) return true;
  }
  return false;
}

// No data moves: views, and what is made without being written.
bool IsFree(const aten::Node& node, const aten::Graph& graph) {
  if (node.op.starts_with("aten.empty") || node.op.starts_with("aten.new_empty") || node.op.starts_with("aten.sym_")) return true;
  bool tensors = false;
  for (const aten::ValueId r : node.results) tensors |= graph.meta(r).kind == aten::Meta::Kind::kTensor;
  return !tensors || (aten::FindRow(node.op) != nullptr && aten::RuleOf(node.op) == ResultRule::kView);
}

}  // namespace

int64_t Costs::steps() const {
  int64_t all = launches + copies + host_copies;
  for (const auto* calls : {&library, &framework}) {
    for (const auto& [name, count] : *calls) all += count;
  }
  return all;
}

Costs CostsOf(const Program& program, const Rates& rates) { return Counter(program, rates).Run(); }

EagerCosts EagerCostsOf(const aten::Graph& graph) {
  EagerCosts costs;
  for (const aten::Node& node : graph.nodes) {
    ++costs.nodes;
    if (IsFree(node, graph)) continue;
    ++costs.launches;
    double results = 0;
    for (const aten::ValueId r : node.results) results += BytesOf(graph.meta(r));
    double read = 0;
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const double bytes = BytesOf(graph.meta(node.operands[i]));
      read += Picks(node.op) && i == 0 ? std::min(bytes, results) : bytes;
    }
    costs.bytes += read + results;
  }
  return costs;
}

}  // namespace tenon::report
