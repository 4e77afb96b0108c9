#include <cstring>

#include "absl/strings/str_cat.h"
#include "hlo/eval/internal.h"

namespace tenon::eval {
namespace {

std::vector<int64_t> Dims(const Literal& l) { return l.shape().constant_dims(); }

// The same bytes under another shape of as many elements.
absl::StatusOr<Literal> Relabel(Context&, const Instruction& i, Operands operands) {
  const Literal& x = operands[0];
  if (!x.shape().is_array()) return x;
  if (i.shape().num_elements() != x.shape().num_elements() ||
      ByteWidth(i.shape().element_type()) != ByteWidth(x.type())) {
    return Invalid(i, absl::StrCat(x.shape().ToString(), " to ", i.shape().ToString()));
  }
  auto keep = std::make_shared<Literal>(x);
  const std::byte* bytes = keep->bytes();
  return Literal(i.shape(), std::move(keep), bytes);
}

// A bitcast reads the operand's memory under the result's layout; both are kept row-major here.
absl::StatusOr<Literal> Bitcast(Context& context, const Instruction& i, Operands operands) {
  const Shape& from = i.operand(0)->shape();
  const Shape& to = i.shape();
  if (!to.is_array() || (from.minor_to_major() == RowMajor(from.rank()) &&
                         to.minor_to_major() == RowMajor(to.rank()))) {
    return Relabel(context, i, operands);
  }
  auto element_strides = [](const Shape& s) {
    Index strides;
    for (Dim d : s.strides()) strides.push_back(d.constant());
    return strides;
  };
  const int64_t width = ByteWidth(to.element_type());
  std::vector<std::byte> memory(operands[0].size_bytes());
  std::vector<int64_t> from_dims = from.constant_dims(), to_dims = to.constant_dims();
  CopyStrided(width, from_dims, operands[0].bytes(), StridesOf(from_dims), memory.data(),
              element_strides(from));
  Literal result(to);
  CopyStrided(width, to_dims, memory.data(), element_strides(to), result.mutable_bytes(),
              StridesOf(to_dims));
  return result;
}

absl::StatusOr<Literal> Broadcast(Context&, const Instruction& i, Operands operands) {
  const Literal& x = operands[0];
  Literal result(i.shape());
  std::vector<int64_t> dims = Dims(result), from = Dims(x);
  Index strides(dims.size(), 0), from_strides = StridesOf(from);
  for (size_t d = 0; d < from.size(); ++d) {
    int64_t to = i.dimensions()[d];
    if (from[d] != dims[to]) return Invalid(i, "operand dims differ from the result's");
    strides[to] = from_strides[d];
  }
  CopyStrided(ByteWidth(x.type()), dims, x.bytes(), strides, result.mutable_bytes(),
              StridesOf(dims));
  return result;
}

absl::StatusOr<Literal> Transpose(Context&, const Instruction& i, Operands operands) {
  const Literal& x = operands[0];
  Shape shape = i.shape();
  Index from_strides = StridesOf(Dims(x)), strides;
  for (int64_t d : i.dimensions()) strides.push_back(from_strides[d]);
  for (int64_t d = 0; d < shape.rank(); ++d) shape.set_dim(d, x.shape().dim(i.dimensions()[d]));
  Literal result(shape);
  std::vector<int64_t> dims = Dims(result);
  CopyStrided(ByteWidth(x.type()), dims, x.bytes(), strides, result.mutable_bytes(),
              StridesOf(dims));
  return result;
}

absl::StatusOr<Literal> Slice(Context&, const Instruction& i, Operands operands) {
  const Literal& x = operands[0];
  const SliceSpec& spec = i.attrs().get<SliceSpec>(Attr::kSlice);
  Literal result(i.shape());
  std::vector<int64_t> dims = Dims(result), from = Dims(x);
  Index strides = StridesOf(from);
  int64_t start = 0;
  for (size_t d = 0; d < dims.size(); ++d) {
    int64_t first = spec.starts[d].constant();
    if (dims[d] > 0 && first + (dims[d] - 1) * spec.strides[d] >= from[d]) {
      return Invalid(i, "slice beyond the operand");
    }
    start += first * strides[d];
    strides[d] *= spec.strides[d];
  }
  const int64_t width = ByteWidth(x.type());
  if (result.num_elements() > 0) {
    CopyStrided(width, dims, x.bytes() + start * width, strides, result.mutable_bytes(),
                StridesOf(dims));
  }
  return result;
}

absl::StatusOr<Literal> Reverse(Context&, const Instruction& i, Operands operands) {
  const Literal& x = operands[0];
  Literal result(x.shape());
  std::vector<int64_t> dims = Dims(x);
  if (x.num_elements() == 0) return result;
  Index strides = StridesOf(dims);
  int64_t start = 0;
  for (int64_t d : i.dimensions()) {
    start += (dims[d] - 1) * strides[d];
    strides[d] = -strides[d];
  }
  const int64_t width = ByteWidth(x.type());
  CopyStrided(width, dims, x.bytes() + start * width, strides, result.mutable_bytes(),
              StridesOf(dims));
  return result;
}

absl::StatusOr<Literal> Concatenate(Context&, const Instruction& i, Operands operands) {
  const int64_t dim = i.dimensions()[0];
  Shape shape = i.shape();
  int64_t total = 0;
  for (const Literal& x : operands) total += x.shape().constant_dim(dim);
  shape.set_dim(dim, total);
  Literal result(shape);
  Index strides = StridesOf(Dims(result));
  const int64_t width = ByteWidth(result.type());
  std::byte* to = result.mutable_bytes();
  for (const Literal& x : operands) {
    std::vector<int64_t> dims = Dims(x);
    CopyStrided(width, dims, x.bytes(), StridesOf(dims), to, strides);
    to += dims[dim] * strides[dim] * width;
  }
  return result;
}

absl::StatusOr<Literal> Pad(Context&, const Instruction& i, Operands operands) {
  const Literal& x = operands[0];
  const auto& config = i.attrs().get<PaddingConfig>(Attr::kPadding).dims;
  Literal result(i.shape());
  const int64_t width = ByteWidth(x.type());
  std::vector<int64_t> dims = Dims(result), from = Dims(x);
  std::byte* to = result.mutable_bytes();
  CopyStrided(width, dims, operands[1].bytes(), Index(dims.size(), 0), to, StridesOf(dims));
  // The part of the operand that lies inside, per dimension: element k goes to low + k * (interior + 1).
  Index from_strides = StridesOf(from), strides = StridesOf(dims), count(dims.size());
  int64_t from_start = 0, to_start = 0;
  for (size_t d = 0; d < dims.size(); ++d) {
    const int64_t step = config[d].interior + 1, low = config[d].low;
    int64_t first = low >= 0 ? 0 : (-low + step - 1) / step;
    int64_t room = dims[d] - 1 - low;  // the last position that is inside
    int64_t last = room < 0 ? -1 : std::min(from[d] - 1, room / step);
    count[d] = std::max<int64_t>(last - first + 1, 0);
    from_start += first * from_strides[d];
    to_start += (low + first * step) * strides[d];
    strides[d] *= step;
  }
  if (Product(count) > 0) {
    CopyStrided(width, count, x.bytes() + from_start * width, from_strides, to + to_start * width,
                strides);
  }
  return result;
}

absl::StatusOr<Literal> Iota(Context&, const Instruction& i, Operands) {
  const int64_t dim = i.attrs().get<int64_t>(Attr::kIotaDimension);
  Literal result(i.shape());
  std::vector<int64_t> dims = Dims(result);
  Literal line(Shape::Array(result.type(), {dims[dim]}));
  for (int64_t k = 0; k < dims[dim]; ++k) line.SetFromInt64(k, k);
  Index strides(dims.size(), 0);
  strides[dim] = 1;
  CopyStrided(ByteWidth(result.type()), dims, line.bytes(), strides, result.mutable_bytes(),
              StridesOf(dims));
  return result;
}

absl::StatusOr<Literal> GetDimensionSize(Context&, const Instruction& i, Operands operands) {
  return Literal::ScalarInt(i.shape().element_type(),
                            operands[0].shape().constant_dim(i.dimensions()[0]));
}

// The literal itself takes the smaller size: what follows computes on the elements that exist.
absl::StatusOr<Literal> SetDimensionSize(Context&, const Instruction& i, Operands operands) {
  const Literal& x = operands[0];
  const int64_t dim = i.dimensions()[0], size = operands[1].GetAsInt64(0);
  const int64_t bound = i.shape().constant_dim(dim);
  if (size < 0 || size > bound) return Invalid(i, absl::StrCat("size ", size, " of ", bound));
  if (size == x.shape().constant_dim(dim)) return x;
  if (size > x.shape().constant_dim(dim)) return Unimplemented(i, "growing a dimension");
  Shape shape = i.shape();
  for (int64_t d = 0; d < shape.rank(); ++d) shape.set_dim(d, d == dim ? Dim(size) : x.shape().dim(d));
  Literal result(shape);
  std::vector<int64_t> dims = Dims(result);
  CopyStrided(ByteWidth(x.type()), dims, x.bytes(), StridesOf(Dims(x)), result.mutable_bytes(),
              StridesOf(dims));
  return result;
}

absl::StatusOr<Literal> DynamicReshape(Context&, const Instruction& i, Operands operands) {
  Shape shape = i.shape();
  for (size_t d = 1; d < operands.size(); ++d) {
    int64_t size = operands[d].GetAsInt64(0);
    if (size < 0 || size > shape.constant_dim(d - 1)) {
      return Invalid(i, absl::StrCat("size ", size, " of dimension ", d - 1));
    }
    shape.set_dim(d - 1, size);
  }
  if (shape.num_elements() != operands[0].shape().num_elements()) {
    return Invalid(i, "another number of elements");
  }
  Literal result(shape);
  std::memcpy(result.mutable_bytes(), operands[0].bytes(), result.size_bytes());
  return result;
}

constexpr HandlerRow kRows[] = {
    {Opcode::kBitcast, Bitcast},
    {Opcode::kBroadcast, Broadcast},
    {Opcode::kConcatenate, Concatenate},
    {Opcode::kDynamicReshape, DynamicReshape},
    {Opcode::kGetDimensionSize, GetDimensionSize},
    {Opcode::kIota, Iota},
    {Opcode::kPad, Pad},
    {Opcode::kReshape, Relabel},
    {Opcode::kReverse, Reverse},
    {Opcode::kSetDimensionSize, SetDimensionSize},
    {Opcode::kSlice, Slice},
    {Opcode::kTranspose, Transpose},
};

}  // namespace

absl::Span<const HandlerRow> MovementHandlers() { return kRows; }

}  // namespace tenon::eval
