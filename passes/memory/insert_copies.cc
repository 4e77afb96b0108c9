// InsertCopies: a copy where one value may not live in the memory in which another wants it.
//
// An output that is written back over a parameter (Module::aliases) while its value is a view of a parameter that is written back
// itself (a, b = b, a): written first, the one destroys what the other still reads. Such a value is copied first.
//
// A dot whose operand is a view in which its batch, free or contracting dims don't merge into one stride each: a library matmul
// can't read it. The copy's layout has the groups together; it becomes a kernel that reads through the view. After assign-layout,
// before fuse. So does a dot whose own layout does not keep its groups together: it is made row-major, then copied.
//
// An operand of a generated contraction that is not contiguous along the dim in which the result's vectors lie: one copy replaces
// gathers in the innermost loop.
//
// An operand of a library call that is not dense and row-major, and a result that the program wants laid out otherwise.
//
// What a scatter or dynamic-update-slice starts from, where it lies otherwise than the result (zeros, above all: one element, broadcast): a
// kernel writes it into memory that the op then takes over, instead of a copy element by element.
//
// A broadcast or transpose behind a reshape that is no view of it (repeat, expanded heads merged, patches of an image): copied in its own
// dims, in which its rows are whole; by the reshape's each element would need divisions. Transposes only of long rows that stay rows.
// An operand of a framework call that repeats elements (ones, above all: one element, broadcast): eager's operator would have got memory in
// which each element has its own place, and not all of them (median) are right where several share one. Contractions and attention are;
// to whom strides are promised (operators of other libraries) the host brings the operand into those.
// A mask of the host's attention whose rows are not contiguous: the host would make it so at each call; one copy does for all layers.
// What the results of regions and the operands of conditionals need: region_copies.h.
#include <algorithm>
#include <optional>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "hlo/builder.h"
#include "hlo/library/describe.h"
#include "passes/expand/control_flow.h"
#include "passes/memory/region_copies.h"
#include "passes/memory/strided_view.h"
#include "passes/pass.h"

namespace tenon {
namespace {

// The parameter whose memory the value is in, or -1.
int64_t ParameterUnder(const Instruction* value, ViewCache& views) {
  const Instruction* owner = views.Of(value).buffer.instruction;
  return owner->opcode() == Opcode::kParameter ? owner->parameter_number() : -1;
}

bool CopyLibraryOperands(Instruction* call, PassContext& context, ViewCache& views) {
  bool changed = false;
  for (int64_t i = 0; i < call->operand_count(); ++i) {
    Instruction* operand = call->operand(i);
    if (!operand->shape().is_array() || IsRowMajor(views.Of(operand))) continue;
    context.Note("insert-copies", "copied", *operand, absl::StrCat(call->name(), " reads dense arrays"));
    call->ReplaceOperand(i, CopyWithLayout(operand, RowMajor(operand->shape().rank())));
    changed = true;
  }
  return changed;
}

// `value`, computed row-major from now on, is read through a copy that has the layout it had.
void Relay(Instruction* value) {
  const Permutation wanted = value->shape().minor_to_major();
  const std::vector<Instruction*> readers(value->users().begin(), value->users().end());
  value->mutable_shape().set_layout(RowMajor(value->shape().rank()));
  // A draw that nobody reads is made all the same, but not copied.
  if (readers.empty() && value != value->parent()->root()) return;
  Instruction* copy = CopyWithLayout(value, wanted);
  for (Instruction* reader : readers) {
    for (int64_t i = 0; i < reader->operand_count(); ++i) {
      if (reader->operand(i) == value) reader->ReplaceOperand(i, copy);
    }
  }
  if (value == value->parent()->root()) value->parent()->set_root(copy);
}

bool CopyLibraryResults(Instruction* call) {
  if (call->shape().is_array()) {
    if (IsRowMajor(call->shape())) return false;
    Relay(call);
    return true;
  }
  bool changed = false;
  const std::vector<Instruction*> users(call->users().begin(), call->users().end());
  for (int64_t k = 0; k < static_cast<int64_t>(call->shape().elements().size()); ++k) {
    Shape& leaf = call->mutable_shape().mutable_element(k);
    if (!leaf.is_array() || IsRowMajor(leaf)) continue;
    leaf.set_layout(RowMajor(leaf.rank()));
    for (Instruction* user : users) {
      if (user->opcode() == Opcode::kGetTupleElement && user->tuple_index() == k) Relay(user);
    }
    changed = true;
  }
  return changed;
}

// A library function reads and writes dense row-major arrays.
bool CopyLibraryArrays(Computation* entry, PassContext& context) {
  bool changed = false;
  for (Instruction* call : entry->PostOrder()) {
    if (!library::IsLibraryCall(*call)) continue;
    ViewCache views;  // anew: results have changed their layouts
    changed |= CopyLibraryOperands(call, context, views);
    changed |= CopyLibraryResults(call);
  }
  return changed;
}

bool CopyWriteBacks(Module& module, PassContext& context, ViewCache& views) {
  Instruction* root = module.entry()->root();
  if (module.aliases.empty() || root->opcode() != Opcode::kTuple) return false;
  absl::flat_hash_set<int64_t> overwritten;
  for (const InputOutputAlias& alias : module.aliases) overwritten.insert(alias.parameter);
  Builder b(module.entry());
  bool changed = false;
  for (const InputOutputAlias& alias : module.aliases) {
    if (alias.output_index.size() != 1) continue;
    Instruction* value = root->operand(alias.output_index[0]);
    const int64_t under = ParameterUnder(value, views);
    if (under < 0 || !overwritten.contains(under) || (value->opcode() == Opcode::kParameter && under == alias.parameter))
      continue;
    b.set_metadata(value->metadata());
    Instruction* copy = b.Copy(value);
    if (value->shape().has_layout()) copy->mutable_shape().set_layout(value->shape().minor_to_major());
    root->ReplaceOperand(alias.output_index[0], copy);
    context.Note("insert-copies", "copied", *value,
                 absl::StrCat("written back over parameter ", alias.parameter, " but lies in parameter ", under,
                              ", which is written back too"));
    changed = true;
  }
  return changed;
}

// Batch dims, then free and contracting dims in the order in which they stand: one copy serves several dots.
std::vector<std::vector<int64_t>> GroupsOf(const Instruction& dot, int64_t i) {
  const std::vector<int64_t> batch = dot.int_list(i == 0 ? Attr::kLhsBatchDims : Attr::kRhsBatchDims);
  const std::vector<int64_t> contracting = dot.int_list(i == 0 ? Attr::kLhsContractingDims : Attr::kRhsContractingDims);
  std::vector<int64_t> free;
  for (int64_t d = 0; d < dot.operand(i)->shape().rank(); ++d) {
    if (!absl::c_linear_search(batch, d) && !absl::c_linear_search(contracting, d)) free.push_back(d);
  }
  if (free < contracting) return {batch, free, contracting};
  return {batch, contracting, free};
}

// A library writes [batch,] rows, columns by one stride each.
bool CopyDotResult(Instruction* dot, PassContext& context) {
  const int64_t batches = static_cast<int64_t>(dot->int_list(Attr::kLhsBatchDims).size());
  const int64_t contracting = static_cast<int64_t>(dot->int_list(Attr::kLhsContractingDims).size());
  const int64_t rows = dot->operand(0)->shape().rank() - contracting, rank = dot->shape().rank();  // where the columns begin
  std::vector<std::vector<int64_t>> groups(3);
  for (int64_t d = 0; d < rank; ++d) groups[d < batches ? 0 : d < rows ? 1 : 2].push_back(d);
  const StridedView view = DenseView({dot, 0}, dot->shape());
  if (absl::c_all_of(groups, [&](const auto& group) { return MergeDims(view, group).has_value(); })) return false;
  const std::vector<Instruction*> users(dot->users().begin(), dot->users().end());
  Builder b(dot->parent());
  b.set_metadata(dot->metadata());
  Instruction* copy = b.Copy(dot);
  copy->mutable_shape().set_layout(dot->shape().minor_to_major());
  dot->mutable_shape().set_layout(RowMajor(rank));
  for (Instruction* user : users) {
    for (int64_t i = 0; i < user->operand_count(); ++i) {
      if (user->operand(i) == dot) user->ReplaceOperand(i, copy);
    }
  }
  if (dot->parent()->root() == dot) dot->parent()->set_root(copy);
  context.Note("insert-copies", "copied", *dot, "can't be written by one stride per group of dims");
  return true;
}

// The layout in which a library matmul can read operand i, if it can't read it as it is.
std::optional<Permutation> LibraryLayout(const Instruction& dot, int64_t i, ViewCache& views) {
  const std::vector<std::vector<int64_t>> groups = GroupsOf(dot, i);
  const StridedView& view = views.Of(dot.operand(i));
  if (absl::c_all_of(groups, [&](const auto& group) { return MergeDims(view, group).has_value(); })) return std::nullopt;
  Permutation layout;
  for (const std::vector<int64_t>& group : groups) layout.insert(layout.end(), group.begin(), group.end());
  std::reverse(layout.begin(), layout.end());
  return layout;
}

// The dim of operand i along which result dim `d` runs one element at a time, or -1.
int64_t OperandDim(const Instruction& op, int64_t i, int64_t d) {
  if (op.opcode() == Opcode::kDot) {
    const std::vector<int64_t> batch = op.int_list(i == 0 ? Attr::kLhsBatchDims : Attr::kRhsBatchDims);
    const int64_t batches = static_cast<int64_t>(batch.size());
    if (d < batches) return batch[d];
    const int64_t lhs_free = op.operand(0)->shape().rank() - batches - static_cast<int64_t>(op.int_list(Attr::kLhsContractingDims).size());
    const int64_t nth = d - batches - (i == 0 ? 0 : lhs_free);
    if (nth < 0 || (i == 0 && nth >= lhs_free)) return -1;
    const std::vector<int64_t> contracting = op.int_list(i == 0 ? Attr::kLhsContractingDims : Attr::kRhsContractingDims);
    int64_t seen = 0;
    for (int64_t k = 0; k < op.operand(i)->shape().rank(); ++k) {
      if (absl::c_linear_search(batch, k) || absl::c_linear_search(contracting, k)) continue;
      if (seen++ == nth) return k;
    }
    return -1;
  }
  const DimLabels& l = op.attrs().get<DimLabels>(Attr::kDimLabels);
  if (i == 1) return d == l.output_feature ? l.kernel_output_feature : -1;
  if (d == l.output_batch) return l.input_batch;
  const Window window = op.attrs().get_or<Window>(Attr::kWindow, {});
  for (size_t s = 0; s < window.dims.size(); ++s) {
    if (l.output_spatial[s] != d) continue;
    return window.dims[s].stride == 1 && window.dims[s].base_dilation == 1 ? l.input_spatial[s] : -1;
  }
  // A depthwise convolution reads the input's features along with the result's.
  const bool depthwise = KnownEqual(op.shape().dim(l.output_feature), op.attrs().get_or<int64_t>(Attr::kFeatureGroupCount, 1)) &&
                         KnownOne(op.operand(1)->shape().dim(l.kernel_input_feature));
  return d == l.output_feature && depthwise ? l.input_feature : -1;
}

// The layout in which generated code reads vectors of operand i, if it would gather them otherwise.
std::optional<Permutation> VectorLayout(const Instruction& op, int64_t i, const PassContext& context, ViewCache& views) {
  constexpr int64_t kVector = 4;  // shorter: not worth it
  const Permutation order = op.shape().minor_to_major();
  const auto minor = absl::c_find_if(order, [&](int64_t d) { return !KnownOne(op.shape().dim(d)); });
  if (minor == order.end() || op.shape().dim(*minor).constant_or(kVector) < kVector) return std::nullopt;
  const int64_t dim = OperandDim(op, i, *minor);
  const DimVector& strides = views.Of(op.operand(i)).strides;
  if (dim < 0 || KnownEqual(strides[dim], 1)) return std::nullopt;
  if (i == 1 && context.packs_where_it_lies && context.packs_where_it_lies(op, strides)) return std::nullopt;
  Permutation layout = RowMajor(op.operand(i)->shape().rank());
  layout.erase(absl::c_find(layout, dim));
  layout.insert(layout.begin(), dim);
  return layout;
}

bool CopyContractionOperands(Computation* entry, PassContext& context, ViewCache& views) {
  absl::flat_hash_map<std::pair<const Instruction*, Permutation>, Instruction*> copies;
  bool changed = false;
  for (Instruction* op : entry->PostOrder()) {
    const bool generated = context.can_generate && context.can_generate(*op);
    const bool wanted = op->opcode() == Opcode::kDot ? op->operand_count() == 2 : op->opcode() == Opcode::kConvolution && generated;
    if (!wanted) continue;
    for (int64_t i = 0; i < 2; ++i) {
      Instruction* operand = op->operand(i);
      const std::optional<Permutation> layout = generated ? VectorLayout(*op, i, context, views) : LibraryLayout(*op, i, views);
      if (!layout) continue;
      Instruction*& copy = copies[{operand, *layout}];
      if (copy == nullptr) {
        Builder b(entry);
        b.set_metadata(op->metadata());
        copy = b.Copy(operand);
        copy->mutable_shape().set_layout(*layout);
        context.Note(
            "insert-copies", "copied", *operand,
            absl::StrCat(op->name(), generated ? " would have to gather its vectors" : " can't read it by one stride per group of dims"));
      }
      op->ReplaceOperand(i, copy);
      changed = true;
    }
    if (!generated) changed |= CopyDotResult(op, context);
  }
  return changed;
}

bool CopyUpdated(Computation* entry, PassContext& context, ViewCache& views) {
  bool changed = false;
  for (Instruction* op : entry->PostOrder()) {
    if (op->opcode() != Opcode::kScatter && op->opcode() != Opcode::kDynamicUpdateSlice) continue;
    const int64_t updated = op->opcode() == Opcode::kScatter ? op->operand_count() / 2 : 1;
    for (int64_t i = 0; i < updated; ++i) {
      Instruction* operand = op->operand(i);
      const Shape& shape = op->shape().is_tuple() ? op->shape().element(i) : op->shape();
      if (views.Of(operand).strides == shape.strides()) continue;
      context.Note("insert-copies", "copied", *operand, absl::StrCat(op->name(), " starts from it, and lies otherwise"));
      op->ReplaceOperand(i, CopyWithLayout(operand, shape.minor_to_major()));
      changed = true;
    }
  }
  return changed;
}

// The layout of the operand in which `reshape`, as it lies, is a view of it.
std::optional<Permutation> LayoutBehindReshape(const Instruction& reshape) {
  const Shape &to = reshape.shape(), &from = reshape.operand(0)->shape();
  const std::optional<DimVector> strides = ReshapeStrides(to.dims(), to.strides(), from.dims());
  if (!strides) return std::nullopt;
  if (to.minor_to_major() == RowMajor(to.rank())) return RowMajor(from.rank());
  return LayoutOfDense(from.dims(), *strides);
}

bool RepeatsElements(const StridedView& view) {
  bool repeats = false;
  for (size_t d = 0; d < view.dims.size(); ++d) {
    if (KnownEqual(view.dims[d], 0)) return false;
    repeats |= !KnownOne(view.dims[d]) && KnownEqual(view.strides[d], 0);
  }
  return repeats;
}

// The call site says in which strides it gets the operand.
bool SaysStrides(const FrameworkArg& arg, int64_t operand) {
  if (arg.is_tensor()) return arg.i == operand && arg.list.size() == 1;
  return absl::c_any_of(arg.list, [&](const FrameworkArg& element) { return SaysStrides(element, operand); });
}

bool CopyCallOperands(Computation* entry, PassContext& context) {
  bool changed = false;
  ViewCache views;
  for (Instruction* call : entry->PostOrder()) {
    const FrameworkCallSite* site = call->opcode() == Opcode::kCustomCall ? call->framework_call() : nullptr;
    if (site == nullptr || site->total) continue;
    for (int64_t i = 0; i < call->operand_count(); ++i) {
      Instruction* operand = call->operand(i);
      if (!operand->shape().is_array() || !RepeatsElements(views.Of(operand))) continue;
      if (absl::c_any_of(site->args, [&](const FrameworkArg& arg) { return SaysStrides(arg, i); })) continue;
      context.Note("insert-copies", "copied", *operand, absl::StrCat(call->name(), " gets memory that repeats nothing"));
      call->ReplaceOperand(i, CopyWithLayout(operand, operand->shape().minor_to_major()));
      changed = true;
    }
  }
  return changed;
}

bool CopyMasks(Computation* entry, PassContext& context) {
  absl::flat_hash_map<const Instruction*, Instruction*> copies;
  ViewCache views;
  for (Instruction* call : entry->PostOrder()) {
    if (call->opcode() != Opcode::kCustomCall) continue;
    const bool forward = call->custom_call_target() == "host.attention";
    if (!forward && call->custom_call_target() != "host.attention_backward") continue;
    const int64_t mask = forward ? 3 : 6;  // behind query, key and value; of the backward behind gradient, result and logsumexp, too
    if (mask >= call->operand_count()) continue;
    Instruction* operand = call->operand(mask);
    const StridedView& view = views.Of(operand);
    if (view.strides.empty() || KnownOne(view.dims.back()) || KnownEqual(view.strides.back(), 1) || RepeatsElements(view)) continue;
    Instruction*& copy = copies[operand];
    if (copy == nullptr) copy = CopyWithLayout(operand, RowMajor(operand->shape().rank()));
    context.Note("insert-copies", "copied", *operand, absl::StrCat(call->name(), " would bring the mask's rows into order"));
    call->ReplaceOperand(mask, copy);
  }
  return !copies.empty();
}

// Does `transpose` move rows whole, which are worth a loop?
bool MovesRows(const Instruction& transpose, ViewCache& views) {
  constexpr int64_t kRow = 8;
  const int64_t last = transpose.shape().rank() - 1;
  return transpose.opcode() == Opcode::kTranspose && last >= 0 && Typical(transpose.shape().dim(last)) >= kRow &&
         KnownEqual(views.Of(&transpose).strides[last], 1);
}

bool CopyBehindReshapes(Computation* entry, PassContext& context) {
  bool changed = false;
  ViewCache views;
  for (Instruction* op : entry->PostOrder()) {
    if (op->opcode() != Opcode::kReshape || views.IsView(*op)) continue;
    Instruction* from = op->operand(0);
    const bool repeats = from->opcode() == Opcode::kBroadcast && !KnownOne(from->operand(0)->shape().num_elements());
    if (!repeats && !MovesRows(*from, views)) continue;
    const std::optional<Permutation> layout = LayoutBehindReshape(*op);
    if (!layout) continue;
    context.Note("insert-copies", "copied", *from,
                 absl::StrCat(op->name(), " merges dims ", repeats ? "of which one only repeats" : "that lie apart"));
    op->ReplaceOperand(0, CopyWithLayout(from, *layout));
    changed = true;
  }
  return changed;
}

}  // namespace

absl::StatusOr<bool> InsertCopies(Module& module, PassContext& context) {
  ViewCache entry_views;
  bool changed = CopyWriteBacks(module, context, entry_views);
  for (Computation* c : ControlComputations(module)) {
    changed |= CopyIntoRegions(c, context);
    changed |= CopyLibraryArrays(c, context);
    ViewCache views;
    changed |= CopyContractionOperands(c, context, views);
    changed |= CopyUpdated(c, context, views);
    changed |= CopyBehindReshapes(c, context);
    changed |= CopyCallOperands(c, context);
    changed |= CopyMasks(c, context);
  }
  return changed;
}

}  // namespace tenon
