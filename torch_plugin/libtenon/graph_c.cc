// tenon_graph_*: the C structs of a graph into an aten::GraphBuilder.
#include <climits>

#include "absl/strings/str_cat.h"
#include "hlo/check.h"
#include "hlo/text_counts.h"
#include "runtime/tenon_c.h"
#include "torch_plugin/libtenon/graph_handle.h"
#include "torch_plugin/libtenon/guarded.h"
#include "torch_plugin/libtenon/seam_values.h"

namespace tenon {
namespace {

using aten::GraphBuilder;
using aten::Meta;
using aten::ValueId;

absl::StatusOr<std::string_view> NameOf(const char* name) {
  if (name == nullptr) return absl::InvalidArgumentError("wanted a name, got NULL");
  return name;
}

absl::StatusOr<Dim> DimOf(const GraphBuilder& graph, int64_t number, const char* expression) {
  if (expression != nullptr) return graph.Expression(expression);
  constexpr int64_t kLargest = (int64_t{1} << 62) - 1;
  if (number > kLargest || number < -kLargest) {
    return absl::InvalidArgumentError(absl::StrCat("wanted a size that fits 62 bits, got ", number));
  }
  return Dim(number);
}

absl::StatusOr<Meta> MetaOf(const GraphBuilder& graph, const TenonMeta* given) {
  if (given == nullptr) return absl::InvalidArgumentError("wanted a meta, got NULL");
  const TenonMeta& m = *given;
  Meta meta;
  const auto expression = [&](int32_t index) { return m.expressions == nullptr ? nullptr : m.expressions[index]; };
  switch (m.kind) {
    case TENON_META_TENSOR: {
      if (m.ndim < 0 || (m.ndim > 0 && (m.sizes == nullptr || m.strides == nullptr))) {
        return absl::InvalidArgumentError(absl::StrCat("wanted sizes and strides, got ", m.ndim, " dimensions without"));
      }
      TENON_ASSIGN_OR_RETURN(meta.dtype, DtypeOf(m.dtype));
      for (int32_t k = 0; k < m.ndim; ++k) {
        TENON_ASSIGN_OR_RETURN(const Dim size, DimOf(graph, m.sizes[k], expression(k)));
        meta.sizes.push_back(size);
      }
      for (int32_t k = 0; k < m.ndim; ++k) {
        TENON_ASSIGN_OR_RETURN(const Dim stride, DimOf(graph, m.strides[k], expression(m.ndim + k)));
        meta.strides.push_back(stride);
      }
      TENON_ASSIGN_OR_RETURN(meta.offset, DimOf(graph, m.offset, expression(2 * m.ndim)));
      if (m.device != nullptr) meta.device = m.device;
      return meta;
    }
    case TENON_META_SYMINT: {
      meta.kind = Meta::Kind::kSymInt;
      TENON_ASSIGN_OR_RETURN(meta.symint, DimOf(graph, m.offset, m.expressions == nullptr ? nullptr : m.expressions[0]));
      return meta;
    }
    case TENON_META_NONE:
      meta.kind = Meta::Kind::kNone;
      return meta;
    case TENON_META_OTHER:
      if (m.other == nullptr) return absl::InvalidArgumentError("wanted why a value is something other, got NULL");
      meta.kind = Meta::Kind::kOther;
      meta.other = m.other;
      return meta;
    default:
      return absl::InvalidArgumentError(absl::StrCat("wanted a kind of meta from 0 to 3, got ", m.kind));
  }
}

absl::StatusOr<int64_t> AddInput(GraphBuilder& graph, const char* name, const TenonMeta* given) {
  TENON_ASSIGN_OR_RETURN(const std::string_view named, NameOf(name));
  TENON_ASSIGN_OR_RETURN(Meta meta, MetaOf(graph, given));
  return graph.AddInput(named, std::move(meta));
}

absl::StatusOr<int64_t> AddConstant(GraphBuilder& graph, const char* name, const TenonMeta* given) {
  TENON_ASSIGN_OR_RETURN(const std::string_view named, NameOf(name));
  TENON_ASSIGN_OR_RETURN(Meta meta, MetaOf(graph, given));
  return graph.AddConstant(named, std::move(meta));
}

absl::StatusOr<int64_t> AddLiteral(GraphBuilder& graph, const char* name, const TenonMeta* given, const void* data, size_t bytes) {
  TENON_ASSIGN_OR_RETURN(const std::string_view named, NameOf(name));
  TENON_ASSIGN_OR_RETURN(Meta meta, MetaOf(graph, given));
  std::vector<int64_t> dims;
  size_t wanted = ByteWidth(meta.dtype);
  for (Dim size : meta.sizes) {
    if (!size.is_constant() || size.constant() < 0) return absl::InvalidArgumentError("a literal's sizes must be numbers, 0 or more");
    dims.push_back(size.constant());
    if (__builtin_mul_overflow(wanted, static_cast<size_t>(size.constant()), &wanted)) {
      return absl::InvalidArgumentError("a literal's sizes are too large");
    }
  }
  if (meta.kind != Meta::Kind::kTensor) return absl::InvalidArgumentError("a constant must be a tensor");
  if (bytes != wanted || (data == nullptr && bytes != 0)) {
    return absl::InvalidArgumentError(absl::StrCat("wanted ", wanted, " bytes of a literal, got ", data == nullptr ? 0 : bytes));
  }
  Literal literal(Shape::Array(meta.dtype, dims));
  if (bytes != 0) std::memcpy(literal.mutable_bytes(), data, bytes);
  return graph.AddLiteral(named, std::move(meta), std::move(literal));
}

absl::StatusOr<int64_t> AddNode(GraphBuilder& graph, const TenonNode* given) {
  if (given == nullptr || given->op == nullptr) return absl::InvalidArgumentError("wanted a node with an operator, got NULL");
  if (given->num_results < 0 || (given->num_results > 0 && given->names == nullptr)) {
    return absl::InvalidArgumentError(absl::StrCat(given->op, ": wanted names of ", given->num_results, " results, got NULL"));
  }
  aten::Node node;
  node.op = given->op;
  TENON_ASSIGN_OR_RETURN(node.args, ArgsOf(given->args, given->num_args));
  TENON_RETURN_IF_ERROR(graph.NumberOperands(&node));
  if (given->num_writes < 0 || (given->num_writes > 0 && given->writes == nullptr)) {
    return absl::InvalidArgumentError(absl::StrCat(given->op, ": wanted ", given->num_writes, " values that it writes, got NULL"));
  }
  for (int64_t w = 0; w < given->num_writes; ++w) TENON_RETURN_IF_ERROR(AddWritten(static_cast<aten::ValueId>(given->writes[w]), &node));
  node.mutates_first = given->mutates_first != 0;
  if (given->module_path != nullptr) node.module_path = given->module_path;
  if (given->source != nullptr) node.source = given->source;
  std::vector<std::string_view> names;
  std::vector<Meta> metas;
  for (int64_t k = 0; k < given->num_results; ++k) {
    TENON_ASSIGN_OR_RETURN(const std::string_view name, NameOf(given->names[k]));
    names.push_back(name);
    if (node.mutates_first) continue;
    TENON_ASSIGN_OR_RETURN(Meta meta, MetaOf(graph, given->metas == nullptr ? nullptr : &given->metas[k]));
    metas.push_back(std::move(meta));
  }
  const auto first = static_cast<int64_t>(graph.graph().values.size());
  TENON_RETURN_IF_ERROR(graph.AddNode(std::move(node), names, std::move(metas)).status());
  return first;
}

absl::Status AddReturn(GraphBuilder& graph, const TenonArg* outputs, int64_t num_outputs) {
  TENON_ASSIGN_OR_RETURN(const std::vector<FrameworkArg> given, ArgsOf(outputs, num_outputs));
  using Kind = FrameworkArg::Kind;
  using aten::GraphOutput;
  for (const FrameworkArg& arg : given) {
    GraphOutput output;
    if (arg.kind == Kind::kTensor) {
      output.value = arg.i > INT32_MAX || arg.i < 0 ? -1 : static_cast<ValueId>(arg.i);
    } else if (arg.kind == Kind::kNone) {
      output.kind = GraphOutput::Kind::kNone;
    } else if (arg.kind == Kind::kInt || arg.kind == Kind::kSymInt) {
      output.kind = GraphOutput::Kind::kSymInt;
      TENON_ASSIGN_OR_RETURN(output.symint, DimOf(graph, arg.i, arg.kind == Kind::kSymInt ? arg.s.c_str() : nullptr));
    } else {
      return absl::InvalidArgumentError(absl::StrCat("wanted a value, none, a number or a SymInt to return, got ", ToString(arg)));
    }
    TENON_RETURN_IF_ERROR(graph.AddOutput(output));
  }
  return graph.Finish();
}

template <typename F>
int64_t Number(const F& add, char** error) noexcept {
  const absl::StatusOr<int64_t> number = Guarded(add, error, /*with_code=*/false);
  return number.ok() ? *number : -1;
}
template <typename F>
int Done(const F& add, char** error) noexcept {
  return Guarded(add, error, /*with_code=*/false).ok() ? 0 : 1;
}

}  // namespace
}  // namespace tenon

extern "C" {

TenonGraph* tenon_graph_new(const char* name, char** error) {
  return tenon::Released(
      [&]() -> absl::StatusOr<std::unique_ptr<TenonGraph>> {
        TENON_ASSIGN_OR_RETURN(const std::string_view named, tenon::NameOf(name));
        return std::make_unique<TenonGraph>(std::string(named));
      },
      error, /*with_code=*/false);
}
void tenon_graph_release(TenonGraph* graph) { delete graph; }

int tenon_graph_symbol(TenonGraph* graph, const char* name, int64_t lower, int64_t upper, int64_t typical, char** error) {
  return tenon::Done(
      [&]() -> absl::Status {
        TENON_ASSIGN_OR_RETURN(const std::string_view named, tenon::NameOf(name));
        return graph->builder.AddSymbol(named, lower, upper, typical);
      },
      error);
}
int64_t tenon_graph_input(TenonGraph* graph, const char* name, const TenonMeta* meta, char** error) {
  return tenon::Number([&] { return tenon::AddInput(graph->builder, name, meta); }, error);
}
int64_t tenon_graph_constant(TenonGraph* graph, const char* name, const TenonMeta* meta, char** error) {
  return tenon::Number([&] { return tenon::AddConstant(graph->builder, name, meta); }, error);
}
int64_t tenon_graph_literal(TenonGraph* graph, const char* name, const TenonMeta* meta, const void* data, size_t bytes, char** error) {
  return tenon::Number([&] { return tenon::AddLiteral(graph->builder, name, meta, data, bytes); }, error);
}
int64_t tenon_graph_node(TenonGraph* graph, const TenonNode* node, char** error) {
  return tenon::Number([&] { return tenon::AddNode(graph->builder, node); }, error);
}
int tenon_graph_return(TenonGraph* graph, const TenonArg* outputs, int64_t num_outputs, char** error) {
  return tenon::Done([&] { return tenon::AddReturn(graph->builder, outputs, num_outputs); }, error);
}

int64_t tenon_graph_value(const TenonGraph* graph, const char* name, char** error) {
  return tenon::Number(
      [&]() -> absl::StatusOr<int64_t> {
        TENON_ASSIGN_OR_RETURN(const std::string_view named, tenon::NameOf(name));
        return graph->builder.Lookup(named);
      },
      error);
}

char* tenon_graph_print(const TenonGraph* graph, char** error) {
  return tenon::GuardedText([&] { return tenon::aten::Print(graph->builder.graph()); }, error, /*with_code=*/false);
}
TenonGraph* tenon_graph_parse(const char* text, size_t size, char** error) {
  return tenon::Released(
      [&]() -> absl::StatusOr<std::unique_ptr<TenonGraph>> {
        auto graph = std::make_unique<TenonGraph>("");
        TENON_ASSIGN_OR_RETURN(graph->builder, tenon::aten::ParseInto({text, size}));
        return graph;
      },
      error, /*with_code=*/false);
}

TenonTextCounts tenon_text_counts(void) {
  const tenon::TextCounts& counts = tenon::text_counts;
  return {counts.graphs_printed.load(), counts.graphs_parsed.load(), counts.modules_printed.load(), counts.modules_parsed.load(),
          counts.json_parsed.load()};
}

}  // extern "C"
