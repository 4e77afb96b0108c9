#include "torch_plugin/executor/frozen.h"

#include <ATen/EmptyTensor.h>

#include <algorithm>

#include "torch_plugin/executor/dtype.h"
#include "torch_plugin/executor/host_function.h"
#include "torch_plugin/executor/tensor.h"

namespace tenon::torch_host {
namespace {

constexpr int64_t kMostStatistics = 16384;  // channels
constexpr size_t kMaxSets = 64;  // modules that share a graph: layers of one network

c10::TensorImpl* ImplOf(const TenonTensor& t) { return static_cast<c10::TensorImpl*>(t.tensor); }

uint32_t VersionOf(c10::TensorImpl& impl) {
  return impl.is_inference() ? 0 : impl.version_counter().current_version();
}

// What may be batch norm's running statistics; none of other tensors.
std::string_view StatisticsOf(const TenonTensor& in) {
  c10::TensorImpl& impl = *ImplOf(in);
  if (in.ndim != 1 || in.sizes[0] > kMostStatistics || !impl.is_contiguous() || impl.requires_grad()) return {};
  return {static_cast<const char*>(in.data), static_cast<size_t>(in.sizes[0]) * impl.itemsize()};
}

}  // namespace

bool FrozenValues::Fits(const Set& set, const TenonTensor* inputs) const {
  for (size_t k = 0; k < inputs_.size(); ++k) {
    const TenonTensor& in = inputs[inputs_[k]];
    const Set::Source& source = set.sources[k];
    if (in.data != source.data || VersionOf(*ImplOf(in)) != source.version || StatisticsOf(in) != source.bytes) return false;
  }
  return true;
}

std::shared_ptr<const FrozenValues::Set> FrozenValues::Find(const TenonTensor* inputs) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto it = sets_.begin(); it != sets_.end(); ++it) {
    if (!Fits(**it, inputs)) continue;
    sets_.splice(sets_.begin(), sets_, it);
    return sets_.front();
  }
  return nullptr;
}

int FrozenValues::Get(const TenonTensor* inputs, std::shared_ptr<const Set>* set, char** error) {
  *set = Find(inputs);
  if (*set != nullptr) return TENON_OK;
  const std::lock_guard<std::mutex> computing(computing_);
  *set = Find(inputs);  // another thread's
  if (*set != nullptr) return TENON_OK;
  auto made = std::make_shared<Set>();
  if (const int code = Compute(inputs, made.get(), error); code != TENON_OK) return code;
  std::list<std::shared_ptr<const Set>> gone;  // freed without the lock
  const std::lock_guard<std::mutex> lock(mutex_);
  ++computed_;
  for (auto it = sets_.begin(); it != sets_.end();) {  // of the same tensors, before they were written to
    const auto next = std::next(it);
    const bool same = std::equal((*it)->sources.begin(), (*it)->sources.end(), made->sources.begin(),
                                 [](const Set::Source& a, const Set::Source& b) { return a.data == b.data; });
    if (same) gone.splice(gone.end(), sets_, it);
    it = next;
  }
  sets_.push_front(made);
  if (sets_.size() > kMaxSets) gone.splice(gone.end(), sets_, std::prev(sets_.end()));
  *set = std::move(made);
  return TENON_OK;
}

int FrozenValues::Compute(const TenonTensor* inputs, Set* set, char** error) const {
  for (size_t i : inputs_) {
    c10::TensorImpl& impl = *ImplOf(inputs[i]);
    set->sources.push_back({impl.storage(), inputs[i].data, VersionOf(impl), std::string(StatisticsOf(inputs[i]))});
  }
  const TenonSignature& signature = *tenon_signature(once_);
  const TenonOutput* outputs = signature.outputs;
  for (int64_t k = 0; k < signature.num_outputs; ++k) {
    const auto dtype = ToTorch(outputs[k].dtype);
    TORCH_CHECK(dtype.has_value() && outputs[k].sizes != nullptr, "frozen value ", k, " is no tensor of known sizes");
    set->values.push_back(at::detail::empty_strided_cpu(at::IntArrayRef(outputs[k].sizes, outputs[k].ndim),
                                                        at::IntArrayRef(outputs[k].strides, outputs[k].ndim), *dtype));
    set->tensors.push_back(Describe(set->values.back().unsafeGetTensorImpl()));
  }
  const int code = tenon_run(once_, inputs, set->tensors.data(), error);
  for (size_t k = 0; k < set->values.size() && code == TENON_OK; ++k) Pack(k, set);
  return code;
}

void FrozenValues::Pack(size_t k, Set* set) const {
  const TenonInput& row = rows_[k];
  if (row.packed_by == nullptr) return;
  at::Tensor& value = set->values[k];
  value = PackOperand(row.packed_by, at::IntArrayRef(row.packing, row.num_packing), value);
  set->tensors[k] = {.tensor = value.unsafeGetTensorImpl(), .data = nullptr, .sizes = row.sizes, .strides = row.strides,
                     .dtype = row.dtype, .ndim = row.ndim};
}

void FrozenValues::Forget() {
  std::list<std::shared_ptr<const Set>> gone;
  const std::lock_guard<std::mutex> lock(mutex_);
  gone.swap(sets_);
}

FrozenValues::Account FrozenValues::account() {
  const std::lock_guard<std::mutex> lock(mutex_);
  Account a{.values = tenon_signature(once_)->num_outputs, .sets = static_cast<int64_t>(sets_.size()), .computed = computed_};
  for (const auto& set : sets_) {
    for (const at::Tensor& t : set->values) a.bytes += static_cast<int64_t>(t.has_storage() ? t.storage().nbytes() : t.nbytes());
  }
  return a;
}

}  // namespace tenon::torch_host
