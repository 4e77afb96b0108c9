// Shapes and attribute values as text, by the kinds of attrs.def.
#include <charconv>

#include "hlo/computation.h"
#include "hlo/text/lexer.h"
#include "hlo/text/printer.h"

namespace tenon::text {

void Printer::ShapeText(const Shape& shape) {
  if (shape.is_tuple()) {
    out_.push_back('(');
    for (size_t i = 0; i < shape.elements().size(); ++i) {
      if (i > 0) out_.append(", ");
      ShapeText(shape.element(static_cast<int64_t>(i)));
    }
    out_.push_back(')');
    return;
  }
  if (shape.element_type() == PrimitiveType::kBuffer && shape.elements().size() == 1) {
    out_.append("b(");
    ShapeText(shape.element(0));
    out_.push_back(')');
    return;
  }
  out_.append(PrimitiveTypeName(shape.element_type()));
  out_.push_back('[');
  for (int64_t i = 0; i < shape.rank(); ++i) {
    if (i > 0) out_.push_back(',');
    if (shape.is_dynamic(i)) out_.append("<=");
    if (shape.dim(i).is_constant()) {
      Number(shape.constant_dim(i));
    } else {
      out_.append(shape.dim(i).ToString());
    }
  }
  out_.push_back(']');
  Layout(shape);
}

void Printer::Layout(const Shape& shape) {
  if (!options_.layouts || !shape.has_layout()) return;
  const Permutation order = shape.minor_to_major();
  const bool suffix = !shape.layout_suffix().empty();
  if (order.empty() && !suffix) return;
  if (options_.canonical && !suffix && order == RowMajor(shape.rank())) return;
  out_.push_back('{');
  for (size_t i = 0; i < order.size(); ++i) {
    if (i > 0) out_.push_back(',');
    Number(order[i]);
  }
  if (suffix) out_.append(":").append(shape.layout_suffix());
  out_.push_back('}');
}

void Printer::Ints(absl::Span<const int64_t> values) {
  out_.push_back('{');
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out_.push_back(',');
    Number(values[i]);
  }
  out_.push_back('}');
}

void Printer::AttributeList(const Instruction& i) {
  const Attributes& attrs = i.attrs();
  for (const auto& [attr, value] : attrs) {
    switch (attr) {
      case Attr::kBackendConfig:
        if (options_.backend_config) BackendConfig(i);
        continue;
      case Attr::kFrontendAttributes:
        continue;
      case Attr::kStatistics:
      case Attr::kOrigin:
        if (options_.canonical) continue;
        break;
      default:
        break;
    }
    out_.append(", ");
    out_.append(attr == Attr::kRngAlgorithm ? "algorithm" : AttrName(attr));
    out_.push_back('=');
    Value(attr, value, i);
  }
  FrontendAttributes(i);
  if (!i.control_predecessors().empty()) {
    out_.append(", control-predecessors={");
    for (size_t k = 0; k < i.control_predecessors().size(); ++k) {
      if (k > 0) out_.append(", ");
      Name(*i.control_predecessors()[k]);
    }
    out_.push_back('}');
  }
  for (const auto& [key, value] : attrs.unknown) out_.append(", ").append(key).append("=").append(value);
  if (options_.metadata && !options_.canonical) MetadataText(i.metadata());
}

void Printer::Value(Attr attr, const AttrValue& value, const Instruction& i) {
  switch (KindOf(attr)) {
    case AttrKind::kInt:
      return Number(std::get<int64_t>(value));
    case AttrKind::kBool:
      out_.append(std::get<bool>(value) ? "true" : "false");
      return;
    case AttrKind::kIntList:
      return Ints(std::get<std::vector<int64_t>>(value));
    case AttrKind::kDimList:
      return Dims(std::get<std::vector<Dim>>(value));
    case AttrKind::kQuoted:
      out_.append("\"").append(Escape(std::get<std::string>(value))).append("\"");
      return;
    case AttrKind::kDouble: {
      char buffer[40];
      const auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), std::get<double>(value));
      out_.append(buffer, end - buffer);
      return;
    }
    case AttrKind::kSlice:
      return SliceText(std::get<SliceSpec>(value));
    case AttrKind::kWindow:
      return WindowText(std::get<Window>(value));
    case AttrKind::kDimLabels:
      return DimLabelsText(std::get<DimLabels>(value));
    case AttrKind::kPadding:
      return PaddingText(std::get<PaddingConfig>(value));
    case AttrKind::kComp:
      return Name(*std::get<Computation*>(value));
    case AttrKind::kCompList: {
      const auto& list = std::get<std::vector<Computation*>>(value);
      out_.push_back('{');
      for (size_t k = 0; k < list.size(); ++k) {
        if (k > 0) out_.append(", ");
        Name(*list[k]);
      }
      out_.push_back('}');
      return;
    }
    case AttrKind::kIdent:
    case AttrKind::kRaw:
      out_.append(std::get<std::string>(value));
      return;
  }
}

void Printer::WindowText(const Window& window) {
  out_.push_back('{');
  bool any = false;
  auto field = [&](std::string_view key, bool wanted, auto&& append) {
    if (!wanted || window.dims.empty()) return;
    if (any) out_.push_back(' ');
    any = true;
    out_.append(key).push_back('=');
    for (size_t i = 0; i < window.dims.size(); ++i) {
      if (i > 0) out_.push_back('x');
      append(window.dims[i]);
    }
  };
  auto some = [&](auto&& differs) { return std::any_of(window.dims.begin(), window.dims.end(), differs); };
  field("size", true, [&](const WindowDim& w) { Number(w.size); });
  field("stride", some([](const WindowDim& w) { return w.stride != 1; }), [&](const WindowDim& w) { Number(w.stride); });
  field("pad", some([](const WindowDim& w) { return w.padding_low != 0 || w.padding_high != 0; }),
        [&](const WindowDim& w) {
          Number(w.padding_low);
          out_.push_back('_');
          Number(w.padding_high);
        });
  field("lhs_dilate", some([](const WindowDim& w) { return w.base_dilation != 1; }),
        [&](const WindowDim& w) { Number(w.base_dilation); });
  field("rhs_dilate", some([](const WindowDim& w) { return w.window_dilation != 1; }),
        [&](const WindowDim& w) { Number(w.window_dilation); });
  field("rhs_reversal", some([](const WindowDim& w) { return w.reversed; }),
        [&](const WindowDim& w) { Number(w.reversed ? 1 : 0); });
  out_.push_back('}');
}

void Printer::Dims(const std::vector<Dim>& dims) {
  out_.push_back('{');
  for (size_t i = 0; i < dims.size(); ++i) out_.append(i > 0 ? "," : "").append(dims[i].ToString());
  out_.push_back('}');
}

void Printer::SliceText(const SliceSpec& slice) {
  out_.push_back('{');
  for (size_t i = 0; i < slice.starts.size(); ++i) {
    if (i > 0) out_.append(", ");
    out_.append("[").append(slice.starts[i].ToString()).append(":").append(slice.limits[i].ToString());
    if (slice.strides[i] != 1) {
      out_.push_back(':');
      Number(slice.strides[i]);
    }
    out_.push_back(']');
  }
  out_.push_back('}');
}

void Printer::DimLabelsText(const DimLabels& l) {
  auto labels = [](char batch, char feature, int64_t b, int64_t f, const std::vector<int64_t>& spatial) {
    std::string text(spatial.size() + 2, '?');
    text.at(b) = batch;
    text.at(f) = feature;
    for (size_t i = 0; i < spatial.size(); ++i) text.at(spatial[i]) = static_cast<char>('0' + i);
    return text;
  };
  out_.append(labels('b', 'f', l.input_batch, l.input_feature, l.input_spatial)).append("_");
  out_.append(labels('i', 'o', l.kernel_input_feature, l.kernel_output_feature, l.kernel_spatial)).append("->");
  out_.append(labels('b', 'f', l.output_batch, l.output_feature, l.output_spatial));
}

void Printer::PaddingText(const PaddingConfig& padding) {
  for (size_t i = 0; i < padding.dims.size(); ++i) {
    const PaddingDim& d = padding.dims[i];
    if (i > 0) out_.push_back('x');
    Number(d.low);
    out_.push_back('_');
    Number(d.high);
    if (d.interior == 0) continue;
    out_.push_back('_');
    Number(d.interior);
  }
}

void Printer::BackendConfig(const Instruction& i) {
  const std::string text = i.backend_config();
  if (i.attrs().backend_config_is_json) {
    out_.append(", backend_config=").append(text);
  } else {
    out_.append(", backend_config=\"").append(Escape(text)).append("\"");
  }
}

// The module path rides along as tenon_module_path; the canonical form leaves it out with the metadata.
void Printer::FrontendAttributes(const Instruction& i) {
  std::string text = i.attrs().get_or<std::string>(Attr::kFrontendAttributes, "");
  const std::string& path = i.metadata().module_path;
  if (!path.empty() && options_.metadata && !options_.canonical) {
    const std::string entry = "tenon_module_path=\"" + Escape(path) + "\"";
    if (text.find_first_not_of("{} ") == std::string::npos) {
      text = "{" + entry + "}";
    } else {
      text.insert(text.size() - 1, "," + entry);
    }
  }
  if (!text.empty()) out_.append(", frontend_attributes=").append(text);
}

void Printer::MetadataText(const Metadata& m) {
  std::string text;
  auto quoted = [&](std::string_view key, const std::string& value) {
    if (!value.empty()) text.append(text.empty() ? "" : " ").append(key).append("=\"").append(Escape(value)).append("\"");
  };
  auto number = [&](std::string_view key, int64_t value) {
    if (value != 0) text.append(text.empty() ? "" : " ").append(key).append("=").append(std::to_string(value));
  };
  quoted("op_type", m.op_type);
  quoted("op_name", m.op_name);
  quoted("source_file", m.source_file);
  number("source_line", m.source_line);
  number("source_end_line", m.source_end_line);
  number("source_column", m.source_column);
  number("source_end_column", m.source_end_column);
  number("stack_frame_id", m.stack_frame_id);
  for (const auto& [key, value] : m.unknown) {
    text.append(text.empty() ? "" : " ").append(key).append("=").append(value);
  }
  if (!text.empty()) out_.append(", metadata={").append(text).append("}");
}

}  // namespace tenon::text
