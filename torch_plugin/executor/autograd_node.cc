#include "torch_plugin/executor/autograd_node.h"

#if TENON_AUTOGRAD_NODE

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/core/grad_mode.h>
#include <ATen/functorch/DynamicLayer.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/dynamo/compiled_autograd.h>
#include <torch/csrc/utils/object_ptr.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <typeinfo>
#include <utility>

#include "torch_plugin/executor/executable_object.h"
#include "torch_plugin/executor/gil.h"
#include "torch_plugin/executor/run.h"
#include "torch_plugin/executor/tensor.h"

namespace tenon::torch_host {

using torch::autograd::AccumulateGrad;
using torch::autograd::AnomalyMode;
using torch::autograd::edge_list;
using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

namespace {

// AOTAutograd's words (torch/_functorch/_aot_autograd/runtime_wrappers.py).
constexpr const char* kDoubleBackward = "torch.compile with aot_autograd does not currently support double backward";
constexpr const char* kTransformed =
    "It looks like you're trying to call a compiled backward function within vmap/grad/vjp, which isn't supported. Try wrapping vmap "
    "inside torch.compile, or skip compiling the backward function.";
constexpr const char* kDeterministic =
    "This compiled backward function is being run with torch.use_deterministic_algorithms(True), but it was previously generated during "
    "the forward function while torch.use_deterministic_algorithms(False) was set.";

// Below autograd and autocast, grad mode off: what prepares a backward's inputs is no part of anybody's graph.
class BelowAutograd {
 private:
  c10::impl::ExcludeDispatchKeyGuard keys_{c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset};
  c10::AutoGradMode no_grad_{false};
};

// The same memory and version counter without history.
at::Tensor Detached(const at::Tensor& tensor) {
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (impl->is_inference()) return tensor;
  return at::Tensor(impl->shallow_copy_and_detach(impl->version_counter(), /*allow_tensor_metadata_change=*/false));
}
uint32_t VersionOf(const at::Tensor& tensor) { return tensor.unsafeGetTensorImpl()->version_counter().current_version(); }

at::Tensor Zeros(c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::ScalarType dtype) {
  at::Tensor zeros = at::detail::empty_strided_cpu(sizes, strides, dtype);
  if (const size_t bytes = zeros.storage().nbytes()) std::memset(zeros.storage().mutable_data(), 0, bytes);
  return zeros;
}

// Of a dense tensor with its dims in this order.
c10::DimVector DenseStrides(c10::IntArrayRef sizes, c10::IntArrayRef order) {
  c10::DimVector strides(sizes.size());
  int64_t stride = 1;
  for (size_t k = order.size(); k-- > 0;) {
    strides[order[k]] = stride;
    stride *= std::max<int64_t>(sizes[order[k]], 1);
  }
  return strides;
}
// Where elements lie depends on the strides of dims of several elements only.
bool SameStrides(c10::IntArrayRef sizes, c10::IntArrayRef a, c10::IntArrayRef b) {
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] > 1 && a[d] != b[d]) return false;
  }
  return true;
}

// A gradient of an output of these sizes and strides as the backward was compiled for it. False: no kernel can read it.
bool Conform(c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::ScalarType dtype, at::Tensor* tangent) {
  if (!tangent->defined()) {
    *tangent = Zeros(sizes, strides, dtype);
    return true;
  }
  if (tangent->layout() != c10::kStrided) *tangent = tangent->to_dense();
  if (tangent->is_neg()) *tangent = tangent->resolve_neg();
  if (tangent->is_conj()) *tangent = tangent->resolve_conj();
  if (!IsPlain(tangent->unsafeGetTensorImpl())) return false;
  TORCH_CHECK(tangent->sizes() == sizes, "compiled backward: wanted a gradient of sizes ", sizes, ", got ", tangent->sizes());
  if (SameStrides(sizes, tangent->strides(), strides) && tangent->scalar_type() == dtype) return true;
  at::Tensor conforming = at::detail::empty_strided_cpu(sizes, strides, dtype);
  *tangent = conforming.copy_(*tangent);
  return true;
}

Results RunByAten(const TrainingPlan& plan, std::span<Argument> arguments) {
  plan.counts->by_aten.fetch_add(1, std::memory_order_relaxed);
  c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  c10::AutoGradMode no_grad(false);
  return CallBoxed(plan.aten_backward->ptr(getPyInterpreter()), arguments);
}

bool Conform(const TrainingPlan::Tangent& want, c10::IntArrayRef dynamic_sizes, at::Tensor* tangent) {
  if (!want.dynamic) return Conform(want.sizes, want.strides, want.dtype, tangent);
  return Conform(dynamic_sizes, DenseStrides(dynamic_sizes, want.order), want.dtype, tangent);
}

// arguments: what was saved. dynamic_sizes: TrainingNode::DynamicSizes(). A gradient per input of the forward, some undefined.
variable_list RunBackward(TrainingPlan& plan, Arguments arguments, std::span<const c10::DimVector> dynamic_sizes,
                          variable_list&& tangents) {
  TORCH_CHECK(!at::functorch::maybeCurrentDynamicLayer().has_value(), kTransformed);
  TORCH_CHECK(!plan.nondeterministic || !at::globalContext().deterministicAlgorithms(), kDeterministic);
  TORCH_CHECK(tangents.size() == plan.tangents.size(), "compiled backward: wanted ", plan.tangents.size(), " gradients, got ",
              tangents.size());
  const int64_t saved = plan.saved + plan.saved_numbers, given = static_cast<int64_t>(arguments.size());
  TORCH_CHECK(given == saved, "compiled backward: wanted ", saved, " saved values, got ", given);
  bool plain = true;
  {
    BelowAutograd below;
    for (size_t k = 0; k < tangents.size(); ++k) {
      plain &= Conform(plan.tangents[k], dynamic_sizes.empty() ? c10::IntArrayRef() : c10::IntArrayRef(dynamic_sizes[k]), &tangents[k]);
    }
  }
  for (at::Tensor& tangent : tangents) {
    const bool sole = tangent.use_count() == 1;
    arguments.push_back(Argument::Give(std::move(tangent), sole));
  }
  plan.counts->backwards.fetch_add(1, std::memory_order_relaxed);
  Results results = plain ? plan.Backward().Run(arguments) : RunByAten(plan, arguments);
  TORCH_CHECK(results.size() == plan.inputs.size(), "compiled backward: wanted ", plan.inputs.size(), " gradients of inputs, got ",
              results.size());
  variable_list grads(results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].kind == Result::Kind::kTensor) grads[i] = std::move(results[i].tensor);
    if (results[i].kind == Result::Kind::kArgument) grads[i] = arguments[results[i].number].Share();
  }
  return grads;
}

bool HasHooks(AccumulateGrad& leaf) {
  return !leaf.tensor_pre_hooks().empty() || !leaf.pre_hooks().empty() || !leaf.post_hooks().empty() ||
         !leaf.retains_grad_hooks().empty() || leaf.tensor_post_acc_grad_hooks() != nullptr;
}

}  // namespace

Program::Program(PyObject* callable) : callable_(std::make_shared<c10::SafePyObject>(Py_NewRef(callable), getPyInterpreter())) {
  if (const std::shared_ptr<CalleeCell>* cell = CellOf(callable)) cell_ = cell->get();
}

Results Program::Run(std::span<Argument> arguments) const {
  if (cell_ == nullptr) {
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    c10::AutoGradMode no_grad(false);
    return CallBoxed(callable_->ptr(getPyInterpreter()), arguments);
  }
  try {
    return cell_->load(std::memory_order_acquire)->Run(arguments);
  } catch (const CheckFailed& failed) {
    ThrowAsPython(failed);
  }
}

uint64_t TrainingPlan::NextId() {
  static std::atomic<uint64_t> next = 0;
  return next.fetch_add(1, std::memory_order_relaxed);
}

Program TrainingPlan::Backward() {
  if (const std::shared_ptr<const Program> known = backward_.load(std::memory_order_acquire)) return *known;
  Gil gil;  // Python makes it once, whoever asks
  THPObjectPtr made(PyObject_CallNoArgs(make_backward->ptr(getPyInterpreter())));
  if (!made) ThrowPythonError();
  auto program = std::make_shared<const Program>(made.get());
  backward_.store(program, std::memory_order_release);
  return *program;
}

void TrainingNode::Save(std::span<at::Tensor> tensors, std::vector<int64_t> numbers) {
  numbers_ = std::move(numbers);
  const size_t checked = tensors.size() - static_cast<size_t>(plan_->saved_unchecked);
  const bool pack = at::SavedTensorDefaultHooks::get_hooks().has_value();
  saved_.reserve(tensors.size());
  for (size_t k = 0; k < tensors.size(); ++k) {
    at::Tensor& tensor = tensors[k];
    TORCH_CHECK(tensor.defined(), "compiled forward: saved value ", k, " is no tensor");
    // Owned with its history, it might own this node.
    const auto* meta = torch::autograd::impl::get_autograd_meta(tensor);
    if (meta != nullptr && (meta->is_view_ || meta->grad_fn_ != nullptr)) tensor = Detached(tensor);
    if ((pack && k < checked) || tensor.is_inference()) {
      packed_.emplace_back(tensor, /*is_output=*/false);  // says of an inference tensor that it cannot be saved
      continue;
    }
    const uint32_t version = VersionOf(tensor);
    saved_.push_back({std::move(tensor), version});
  }
}

std::string TrainingNode::name() const { return "TenonBackward"; }

void TrainingNode::release_variables() {
  const std::lock_guard<std::mutex> lock(mutex_);
  saved_.clear();
  packed_.clear();
  released_ = true;
}

void TrainingNode::release_resources() {
  saved_.clear();
  packed_.clear();
  Node::release_resources();
}

// In the words of SavedVariable::unpack.
void TrainingNode::CheckVersion(const Saved& saved) const {
  const uint32_t version = VersionOf(saved.tensor);
  if (version == saved.version) return;
  TORCH_CHECK(false, "one of the variables needed for gradient computation has been modified by an inplace operation: [",
              saved.tensor.toString(), " ", saved.tensor.sizes(), "] is at version ", version, "; expected version ", saved.version,
              " instead. Hint: ",
              AnomalyMode::is_enabled() ? "the backtrace further above shows the operation that failed to compute its gradient. The "
                                          "variable in question was changed in there or anywhere later. Good luck!"
                                        : "enable anomaly detection to find the operation that failed to compute its gradient, with "
                                          "torch.autograd.set_detect_anomaly(True, check_nan=False).");
}

void TrainingNode::Unpack(bool keep, Arguments* arguments) {
  TORCH_CHECK(!released_, torch::autograd::ERR_BACKWARD_TWICE);
  const size_t checked = saved_.size() - (packed_.empty() ? static_cast<size_t>(plan_->saved_unchecked) : saved_.size());
  for (size_t k = 0; k < checked; ++k) CheckVersion(saved_[k]);
  for (const int64_t number : numbers_) arguments->push_back(Argument(number));
  for (const SavedVariable& packed : packed_) arguments->push_back(Argument::Give(packed.unpack(), false));
  for (Saved& saved : saved_) {
    if (keep) {
      arguments->push_back(Argument::Borrow(saved.tensor.unsafeGetTensorImpl()));
    } else {
      const bool sole = saved.tensor.use_count() == 1;
      arguments->push_back(Argument::Give(std::move(saved.tensor), sole));
    }
  }
  if (keep) return;
  released_ = true;
  saved_.clear();
  packed_.clear();
}

std::vector<c10::DimVector> TrainingNode::DynamicSizes() const {
  std::vector<c10::DimVector> sizes;
  if (std::none_of(plan_->tangents.begin(), plan_->tangents.end(), [](const auto& tangent) { return tangent.dynamic; })) return sizes;
  sizes.resize(plan_->tangents.size());
  for (uint32_t k = 0; k < sizes.size(); ++k) {
    for (const c10::SymInt& size : input_metadata(k).shape_as_dim_vector()) sizes[k].push_back(size.guard_int(__FILE__, __LINE__));
  }
  return sizes;
}

variable_list TrainingNode::apply(variable_list&& grads) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool keep = torch::autograd::get_current_graph_task_keep_graph();
  const bool create_graph = c10::GradMode::is_enabled();
  Arguments arguments;
  Unpack(keep, &arguments);
  const variable_list tangents = create_graph ? grads : variable_list();
  variable_list results = RunBackward(*plan_, std::move(arguments), DynamicSizes(), std::move(grads));
  if (create_graph) {
    ForbidDoubleBackward(tangents, &results);
  } else if (!keep) {
    Accumulate(&results);
  }
  return results;
}

// Adds to leaves' gradients what the engine would add, where nobody can tell: docs/architecture/autograd.md, "Accumulating".
namespace {

struct OpenLeaf : AccumulateGrad {
  static std::mutex& Mutex(AccumulateGrad& leaf) { return leaf.*&OpenLeaf::mutex_; }
};

template <typename T>
void Add(const at::Tensor& into, const at::Tensor& grad) {
  T* to = into.mutable_data_ptr<T>();
  const T* from = grad.const_data_ptr<T>();
  for (int64_t k = 0, n = into.numel(); k < n; ++k) to[k] += from[k];
}

// AccumulateGrad::apply where a few numbers are added to those that are there: what ATen does around such a sum (dispatch, an iterator)
// takes ten times as long. False: it is something else.
bool AddFew(AccumulateGrad& leaf, const at::Tensor& grad) {
  constexpr int64_t kFew = 1024;
  const at::Tensor& variable = leaf.variable;
  if (c10::GradMode::is_enabled() || variable.grad_fn() != nullptr || !variable.requires_grad() || grad.numel() > kFew) return false;
  const std::lock_guard<std::mutex> lock(OpenLeaf::Mutex(leaf));
  const at::Tensor& into = variable.grad();
  const auto plain = [](const at::Tensor& t) { return IsPlain(t.unsafeGetTensorImpl()) && !t.is_inference() && !t._fw_grad(0).defined(); };
  if (!into.defined() || !plain(into) || !plain(grad) || into.scalar_type() != grad.scalar_type()) return false;
  // ATen warns where a gradient lies otherwise than its variable.
  if (into.sizes() != grad.sizes() || into.strides() != grad.strides() || into.strides() != variable.strides()) return false;
  if (!into.is_non_overlapping_and_dense() || into.is_alias_of(grad)) return false;  // of one memory: ATen knows which overlaps to refuse
  if (into.scalar_type() == at::kFloat) Add<float>(into, grad);
  else if (into.scalar_type() == at::kDouble) Add<double>(into, grad);
  else return false;
  into.unsafeGetTensorImpl()->bump_version();
  return true;
}

}  // namespace

void TrainingNode::Accumulate(variable_list* grads) {
  const auto* selected = torch::autograd::get_current_graph_task_exec_info();
  if (selected == nullptr || !selected->empty() || AnomalyMode::is_enabled() || !post_hooks_.empty()) return;
  edge_list done;
  for (size_t i = 0; i < grads->size(); ++i) {
    torch::autograd::Edge& edge = next_edges_[i];
    if (!plan_->inputs[i].accumulates || !(*grads)[i].defined() || !edge.is_valid() || edge.function.use_count() != 1) continue;
    Node& node = *edge.function;
    if (typeid(node) != typeid(AccumulateGrad)) continue;
    auto& leaf = static_cast<AccumulateGrad&>(node);
    if (HasHooks(leaf)) continue;
    if (AddFew(leaf, (*grads)[i])) {
      (*grads)[i].reset();
    } else {
      variable_list grad(1);
      grad[0] = std::move((*grads)[i]);
      leaf.apply(std::move(grad));
    }
    done.push_back(std::exchange(edge, {}));
  }
  if (done.empty()) return;
  plan_->counts->accumulated.fetch_add(static_cast<int64_t>(done.size()), std::memory_order_relaxed);
  Gil gil;  // leaves are Python's: each would take it to be let go
  done.clear();
}

void TrainingNode::ForbidDoubleBackward(const variable_list& tangents, variable_list* grads) {
  edge_list edges = next_edges_;
  for (const at::Tensor& tangent : tangents) {
    if (tangent.defined() && tangent.requires_grad()) edges.push_back(torch::autograd::impl::gradient_edge(tangent));
  }
  const NodePtr<Node> error = MakeNode<torch::autograd::Error>(kDoubleBackward, std::move(edges));
  for (at::Tensor& grad : *grads) {
    if (!grad.defined() || !torch::autograd::isDifferentiableType(grad.scalar_type())) continue;
    if (grad.use_count() > 1) grad = Detached(grad);  // a tangent itself, or the gradient of two inputs
    torch::autograd::set_history(grad, error);
  }
}

void TrainingNode::compiled_args(torch::dynamo::autograd::CompiledNodeArgs& args) const {
  TORCH_CHECK(!released_, torch::autograd::ERR_BACKWARD_TWICE);
  args.collect(std::string("tenon"));
  args.collect(plan_->id);
  for (const int64_t number : numbers_) args.collect(number);
  for (const c10::DimVector& sizes : DynamicSizes()) {  // apply_with_saved() binds them
    for (const int64_t size : sizes) args.collect(size);
  }
  args.collect(packed_, /*is_output=*/false);
  for (const Saved& saved : saved_) args.collect(saved.tensor);
}

// As CppNode's: an opaque call of what was saved and the tangents, in the graph that compiled autograd makes.
variable_list TrainingNode::apply_with_saved(const variable_list& inputs, torch::dynamo::autograd::SwapSavedVariables& swap) {
  namespace dynamo = torch::dynamo::autograd;
  swap.before(packed_);
  for (Saved& saved : saved_) swap.before(saved.tensor);
  std::vector<at::Tensor> tensors;
  for (const SavedVariable& packed : packed_) tensors.push_back(packed.unpack());
  for (const Saved& saved : saved_) tensors.push_back(saved.tensor);
  dynamo::PackedArgs packed_args;
  packed_args.pack(tensors);
  const std::vector<c10::IValue> args = packed_args.vec();
  std::vector<at::TypePtr> schema;
  for (const c10::IValue& value : args) schema.push_back(value.type());
  const std::weak_ptr<TrainingPlan> weak = plan_;  // the binding lives as long as the process
  const auto run = [weak, numbers = numbers_, sizes = DynamicSizes()](const variable_list& grads, const std::vector<c10::IValue>& packed) {
    const std::shared_ptr<TrainingPlan> plan = weak.lock();
    TORCH_CHECK(plan != nullptr, "compiled backward: its graph is gone");
    const std::vector<at::Tensor> saved = dynamo::PackedArgs(packed).unpack<std::vector<at::Tensor>>();
    Arguments arguments;
    for (const int64_t number : numbers) arguments.push_back(Argument(number));
    for (const at::Tensor& tensor : saved) arguments.push_back(Argument::Borrow(tensor.unsafeGetTensorImpl()));
    std::unique_ptr<NoGil> no_gil = PyGILState_Check() != 0 ? std::make_unique<NoGil>() : nullptr;
    return RunBackward(*plan, std::move(arguments), sizes, variable_list(grads));
  };
  const auto& compiler = dynamo::getPyCompilerInterface();
  const std::string function = compiler->bind_function(swap.get_py_compiler(), "Tenon" + std::to_string(plan_->id), run, schema,
                                                       /*is_custom_function=*/true, /*is_traceable=*/false);
  const c10::IValue metadata =
      dynamo::IValuePacker<std::vector<std::optional<torch::autograd::InputMetadata>>>::pack(dynamo::get_input_metadata(next_edges()));
  variable_list grads = compiler->call_function(swap.get_py_compiler(), "apply_functional", function, inputs, args, metadata);
  for (Saved& saved : saved_) swap.after(saved.tensor);
  swap.after(packed_);
  return grads;
}

}  // namespace tenon::torch_host

#endif  // TENON_AUTOGRAD_NODE
