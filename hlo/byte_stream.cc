#include "hlo/byte_stream.h"

#include "hlo/literal.h"
#include "hlo/shape.h"

namespace tenon {

void ByteStream::Add(Dim dim) {
  const DimExpr* e = dim.expr();
  if (e == nullptr) {
    Number(0);
    return Number(dim.constant());
  }
  Number(1 + static_cast<int>(e->kind));
  if (e->kind == DimExpr::Kind::kSymbol) {
    Text(e->symbol);
    Number(e->lower);
    Number(e->upper);
    Number(e->divisor);
    return Number(e->typical);
  }
  AddDims(e->operands);
  AddNumbers(e->coefficients);
  Number(e->addend);
}

void ByteStream::Add(const Shape& shape, bool with_layout) {
  Enum(shape.element_type());
  AddDims(shape.dims());
  for (int64_t i = 0; i < shape.rank(); ++i) Bool(shape.is_dynamic(i));
  // Row-major is what none means.
  Permutation order;
  if (with_layout && shape.has_layout()) order = shape.minor_to_major();
  if (order == RowMajor(shape.rank())) order.clear();
  AddNumbers(order);
  Text(with_layout ? std::string_view(shape.layout_suffix()) : "");
  Number(shape.elements().size());
  for (const Shape& element : shape.elements()) Add(element, with_layout);
}

void ByteStream::Add(const Literal& literal) {
  Add(literal.shape(), /*with_layout=*/true);
  if (literal.shape().is_tuple()) {
    for (const Literal& element : literal.elements()) Add(element);
    return;
  }
  Data({reinterpret_cast<const char*>(literal.bytes()), static_cast<size_t>(literal.size_bytes())});
}

void ByteStream::Add(const FrameworkArg& arg) {
  using Kind = FrameworkArg::Kind;
  Enum(arg.kind);
  switch (arg.kind) {
    case Kind::kNone:
      return;
    case Kind::kTensor:
      Number(arg.i);
      Number(arg.list.size());
      for (const FrameworkArg& element : arg.list) Add(element);
      return;
    case Kind::kInt:
    case Kind::kBool:
      return Number(arg.i);
    case Kind::kFloat:
      return Real(arg.f);
    case Kind::kComplex:
      Real(arg.f);
      return Real(arg.im);
    case Kind::kDtype:
      return Enum(arg.dtype);
    case Kind::kString:
    case Kind::kLayout:
    case Kind::kDevice:
    case Kind::kMemoryFormat:
    case Kind::kSymInt:
      return Text(arg.s);
    case Kind::kList:
      Number(arg.list.size());
      for (const FrameworkArg& element : arg.list) Add(element);
  }
}

void ByteStream::Add(const FrameworkCallSite& site) {
  Number(site.args.size());
  for (const FrameworkArg& arg : site.args) Add(arg);
  Enum(site.rule);
  Enum(site.effect);
  Bool(site.total);
  Number(site.num_results.value_or(-1));
  AddNumbers(site.results);
  Bool(site.strides.has_value());
  if (site.strides) {
    Number(site.strides->size());
    for (const std::vector<Dim>& strides : *site.strides) AddDims(strides);
  }
  Number(site.writes.size());
  for (const WrittenOperand& w : site.writes) {
    Number(w.leaf);
    Number(w.operand);
  }
  Text(site.reason);
}

}  // namespace tenon
