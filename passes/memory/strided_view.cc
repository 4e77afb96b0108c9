#include "passes/memory/strided_view.h"

namespace tenon {

bool IsRowMajor(const StridedView& view) {
  Dim stride = 1;
  for (size_t d = view.dims.size(); d-- > 0;) {
    if (KnownOne(view.dims[d])) continue;
    if (!KnownEqual(view.strides[d], stride)) return false;
    stride *= view.dims[d];
  }
  return true;
}

StridedView DenseView(BufferKey key, const Shape& shape) {
  StridedView view{.buffer = key};
  view.dims.assign(shape.dims().begin(), shape.dims().end());
  view.strides = shape.strides();
  return view;
}

std::optional<DimVector> ReshapeStrides(absl::Span<const Dim> dims, absl::Span<const Dim> strides,
                                        absl::Span<const Dim> new_dims) {
  // Walks both shapes from the minor end, matching chunks of old dims that are contiguous among themselves with new dims.
  DimVector result(new_dims.size(), Dim(0));
  for (Dim d : dims) {
    if (KnownEqual(d, 0)) {  // nothing is ever read: any strides do
      Dim stride = 1;
      for (int64_t i = static_cast<int64_t>(new_dims.size()) - 1; i >= 0; --i) {
        result[i] = stride;
        stride *= Max(new_dims[i], 1);
      }
      return result;
    }
  }
  int64_t next = static_cast<int64_t>(new_dims.size()) - 1;
  int64_t i = static_cast<int64_t>(dims.size()) - 1;
  while (i >= 0) {
    Dim chunk = dims[i], base = strides[i];
    int64_t top = i;
    bool base_known = !KnownOne(dims[i]);
    while (top > 0) {
      const Dim outer = dims[top - 1];
      if (KnownOne(outer)) {
        --top;
        continue;
      }
      if (!base_known) {
        base = strides[top - 1];
        base_known = true;
      } else if (!KnownEqual(strides[top - 1], chunk * base)) {
        break;
      }
      chunk *= outer;
      --top;
    }
    Dim filled = 1;
    while (next >= 0 && (!KnownEqual(filled, chunk) || KnownOne(new_dims[next]))) {
      result[next] = filled * base;
      filled *= new_dims[next];
      --next;
    }
    if (!KnownEqual(filled, chunk)) return std::nullopt;
    i = top - 1;
  }
  for (; next >= 0; --next) {
    if (!KnownOne(new_dims[next])) return std::nullopt;
    result[next] = 1;
  }
  return result;
}

std::optional<Permutation> LayoutOfDense(absl::Span<const Dim> dims, absl::Span<const Dim> strides) {
  const auto rank = static_cast<int64_t>(dims.size());
  std::vector<int64_t> place(dims.size());  // dims of one place lie in each other, the later one inside
  if (absl::c_all_of(strides, [](Dim d) { return d.is_constant(); })) {
    for (int64_t d = 0; d < rank; ++d) place[d] = strides[d].constant();
  } else {
    std::vector<int64_t> left;
    for (int64_t d = rank; d-- > 0;) {
      if (!KnownOne(dims[d])) left.push_back(d);
    }
    Dim inside = 1;
    for (int64_t k = 0; !left.empty(); ++k) {
      const auto next = absl::c_find_if(left, [&](int64_t d) { return KnownEqual(strides[d], inside); });
      if (next == left.end()) return std::nullopt;
      place[*next] = k;
      inside *= dims[*next];
      left.erase(next);
    }
  }
  int64_t inner = 0;
  for (int64_t d = rank; d-- > 0;) {
    if (KnownOne(dims[d])) place[d] = inner;
    inner = place[d];
  }
  Permutation layout = RowMajor(rank);
  absl::c_stable_sort(layout, [&](int64_t a, int64_t b) { return place[a] < place[b]; });
  return layout;
}

namespace {

std::optional<StridedView> Reshaped(const Instruction& op, const StridedView& operand) {
  std::optional<DimVector> strides = ReshapeStrides(operand.dims, operand.strides, op.shape().dims());
  if (!strides) return std::nullopt;
  StridedView view = operand;
  view.dims.assign(op.shape().dims().begin(), op.shape().dims().end());
  view.strides = *strides;
  return view;
}

// The same bytes under another shape of the same width: a view of a whole buffer only.
std::optional<StridedView> Bitcasted(const Instruction& op, const StridedView& operand) {
  const Shape &from = op.operand(0)->shape(), &to = op.shape();
  const StridedView whole = DenseView(operand.buffer, from);
  if (from.element_type() != to.element_type() || !(operand.offset == whole.offset) || operand.strides != whole.strides) {
    return std::nullopt;
  }
  return DenseView(operand.buffer, to);
}

StridedView Transposed(const Instruction& op, const StridedView& operand) {
  StridedView view = operand;
  for (int64_t i = 0; i < op.shape().rank(); ++i) {
    view.dims[i] = operand.dims[op.dimensions()[i]];
    view.strides[i] = operand.strides[op.dimensions()[i]];
  }
  return view;
}

StridedView Broadcasted(const Instruction& op, const StridedView& operand) {
  StridedView view{.buffer = operand.buffer, .offset = operand.offset};
  view.dims.assign(op.shape().dims().begin(), op.shape().dims().end());
  view.strides.assign(view.dims.size(), Dim(0));
  for (size_t i = 0; i < op.dimensions().size(); ++i) view.strides[op.dimensions()[i]] = operand.strides[i];
  return view;
}

StridedView Sliced(const Instruction& op, const StridedView& operand) {
  const SliceSpec& slice = op.attrs().get<SliceSpec>(Attr::kSlice);
  StridedView view = operand;
  for (int64_t i = 0; i < op.shape().rank(); ++i) {
    view.offset += slice.starts[i] * operand.strides[i];
    view.dims[i] = op.shape().dim(i);
    view.strides[i] = operand.strides[i] * slice.strides[i];
  }
  return view;
}

}  // namespace

std::optional<StridedView> ApplyViewOp(const Instruction& op, const StridedView& operand) {
  switch (op.opcode()) {
    case Opcode::kBitcast: return Bitcasted(op, operand);
    case Opcode::kReshape: return Reshaped(op, operand);
    case Opcode::kTranspose: return Transposed(op, operand);
    case Opcode::kBroadcast: return Broadcasted(op, operand);
    case Opcode::kSlice: return Sliced(op, operand);
    default: return std::nullopt;
  }
}

StridedView ViewByLayout(const Instruction* op) { return ViewCache().Of(op); }

namespace {

bool MayBeView(const Instruction& op) { return op.family() == Family::kMovement && op.operand_count() > 0; }

StridedView OwnBuffer(const Instruction* op) {
  if (op->opcode() != Opcode::kGetTupleElement) return DenseView({op, 0}, op->shape());
  return DenseView({op->operand(0), op->tuple_index()}, op->shape());
}

}  // namespace

const StridedView& ViewCache::Of(const Instruction* op) {
  std::vector<const Instruction*> chain = {op};  // down to what is known or owns its buffer
  while (!views_.contains(chain.back()) && MayBeView(*chain.back())) chain.push_back(chain.back()->operand(0));
  const StridedView* view = nullptr;
  for (; !chain.empty(); chain.pop_back()) {
    const Instruction* at = chain.back();
    if (auto known = views_.find(at); known != views_.end()) {
      view = &known->second;
      continue;
    }
    std::optional<StridedView> made = MayBeView(*at) ? ApplyViewOp(*at, *view) : std::nullopt;
    view = &(views_[at] = made.has_value() ? *std::move(made) : OwnBuffer(at));
  }
  return *view;
}

bool ViewCache::IsView(const Instruction& op) { return MayBeView(op) && !(Of(&op).buffer == BufferKey{&op, 0}); }

std::optional<std::pair<Dim, Dim>> MergeDims(const StridedView& view, absl::Span<const int64_t> group) {
  Dim size = 1, stride = 0;
  bool first = true;
  for (auto it = group.rbegin(); it != group.rend(); ++it) {
    const Dim d = view.dims[*it], s = view.strides[*it];
    if (KnownOne(d)) continue;
    if (first) {
      stride = s;
      first = false;
    } else if (!KnownEqual(s, size * stride)) {
      return std::nullopt;
    }
    size *= d;
  }
  return std::make_pair(size, stride);
}

}  // namespace tenon
