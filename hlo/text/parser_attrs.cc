// The attributes after an instruction's operands, by the kinds of attrs.def.
#include <charconv>

#include "hlo/text/parser.h"

namespace tenon::text {

bool Parser::AttributeList(Scope* scope, Draft* draft) {
  std::vector<std::string_view> seen;
  while (lex_.Try(',')) {
    lex_.SkipSpace();
    const size_t position = lex_.position();
    const std::string_view key = lex_.Identifier();
    if (key.empty()) return lex_.Error("an attribute");
    for (std::string_view s : seen) {
      if (s == key) return lex_.Error(position, "each attribute once", absl::StrCat("'", Abs(key), "' again"));
    }
    // Instructions have a handful; a limit keeps the search above from becoming quadratic.
    if (seen.size() > 256) return lex_.Error(position, "at most 256 attributes", "more");
    seen.push_back(key);
    if (!lex_.Expect('=') || !Attribute(scope, draft, key)) return false;
  }
  return true;
}

bool Parser::Attribute(Scope* scope, Draft* draft, std::string_view key) {
  std::optional<Attr> attr = ParseAttr(draft->opcode, key);
  if (!attr.has_value() && draft->async_sugar && draft->opcode == Opcode::kAsyncStart) {
    attr = ParseAttr(draft->wrapped, key);
  }
  if (!attr.has_value()) {
    if (key == "literal" && draft->opcode == Opcode::kCustomCall) return LiteralAttribute(draft);
    lex_.SkipSpace();
    const std::optional<std::string_view> value = lex_.Balanced();
    if (!value.has_value()) return false;
    draft->attrs.unknown.emplace_back(std::string(key), NormalizeSpace(*value));
    return true;
  }
  switch (*attr) {
    case Attr::kMetadata:
      return MetadataValue(&draft->metadata);
    case Attr::kBackendConfig:
      return BackendConfig(&draft->attrs);
    case Attr::kControlPredecessors:
      return ControlPredecessors(scope, draft);
    case Attr::kFrontendAttributes:
      return FrontendAttributes(draft);
    case Attr::kReplicaGroups:
      return ReplicaGroupsText(draft);
    default:
      break;
  }
  AttrValue value;
  if (!Value(scope, KindOf(*attr), &value)) return false;
  draft->attrs.set(*attr, std::move(value));
  return true;
}

// {{0,1}}, [2,2]<=[4]T(1,0), or mesh['a'=2], device_ids=([2]) {'a'}, the only value with blanks and commas outside of brackets.
bool Parser::ReplicaGroupsText(Draft* draft) {
  lex_.SkipSpace();
  const size_t start = lex_.position();
  const bool mesh = lex_.PeekIdentifier() == "mesh";
  if (!lex_.Balanced().has_value()) return false;
  if (mesh) {
    if (lex_.Try(',') && !lex_.Balanced().has_value()) return false;
    if (lex_.Between(start, lex_.position()).find('{') == std::string_view::npos && !lex_.Balanced(/*braced=*/true).has_value())
      return false;
  }
  draft->attrs.set(Attr::kReplicaGroups, NormalizeSpace(lex_.Between(start, lex_.position())));
  return true;
}

// literal=s32[2]{0} {1, 2}: the one value that isn't a word or in brackets. Nothing looks into it, so it is kept as it stands.
bool Parser::LiteralAttribute(Draft* draft) {
  lex_.SkipSpace();
  const size_t start = lex_.position();
  Shape shape;
  Literal literal;
  if (!ParseShape(&shape) || !ParseLiteral(shape, draft->name, &literal)) return false;
  draft->attrs.unknown.emplace_back("literal", NormalizeSpace(lex_.Between(start, lex_.position())));
  return true;
}

bool Parser::Value(Scope* scope, AttrKind kind, AttrValue* value) {
  switch (kind) {
    case AttrKind::kInt: {
      const std::optional<int64_t> v = lex_.Int();
      if (!v.has_value()) return false;
      *value = *v;
      return true;
    }
    case AttrKind::kBool:
      return Bool(&value->emplace<bool>());
    case AttrKind::kIntList:
      return IntList(&value->emplace<std::vector<int64_t>>());
    case AttrKind::kDimList:
      return DimList(&value->emplace<std::vector<Dim>>());
    case AttrKind::kIdent: {
      const std::string_view id = lex_.Identifier();
      if (id.empty()) return lex_.Error("an identifier");
      *value = std::string(id);
      return true;
    }
    case AttrKind::kQuoted: {
      std::optional<std::string> text = lex_.Quoted();
      if (!text.has_value()) return false;
      *value = *std::move(text);
      return true;
    }
    case AttrKind::kDouble:
      return Double(&value->emplace<double>());
    case AttrKind::kSlice:
      return SliceValue(&value->emplace<SliceSpec>());
    case AttrKind::kWindow:
      return WindowValue(&value->emplace<Window>());
    case AttrKind::kDimLabels:
      return DimLabelsValue(&value->emplace<DimLabels>());
    case AttrKind::kPadding:
      return PaddingValue(&value->emplace<PaddingConfig>());
    case AttrKind::kComp:
      return ComputationRef(scope, &value->emplace<Computation*>(nullptr));
    case AttrKind::kCompList:
      return ComputationRefs(scope, &value->emplace<std::vector<Computation*>>());
    case AttrKind::kRaw: {
      const std::optional<std::string_view> raw = lex_.Balanced();
      if (!raw.has_value()) return false;
      *value = NormalizeSpace(*raw);
      return true;
    }
  }
  return lex_.Error("an attribute value");
}

bool Parser::Bool(bool* out) {
  lex_.SkipSpace();
  const size_t position = lex_.position();
  const std::string_view word = lex_.NumberText();
  *out = word == "true" || word == "1";
  if (*out || word == "false" || word == "0") return true;
  lex_.set_position(position);
  return lex_.Error("true or false");
}

bool Parser::Double(double* out) {
  lex_.SkipSpace();
  const size_t position = lex_.position();
  std::string_view word = lex_.NumberText();
  if (word.starts_with('+')) word.remove_prefix(1);
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), *out);
  if (!word.empty() && error == std::errc() && end == word.data() + word.size()) return true;
  lex_.set_position(position);
  return lex_.Error("a number");
}

bool Parser::IntList(std::vector<int64_t>* out) {
  if (!lex_.Expect('{')) return false;
  if (lex_.Try('}')) return true;
  do {
    const std::optional<int64_t> v = lex_.Int();
    if (!v.has_value()) return false;
    out->push_back(*v);
  } while (lex_.Try(','));
  return lex_.Expect('}');
}

bool Parser::DimList(std::vector<Dim>* out) {
  if (!lex_.Expect('{')) return false;
  if (lex_.Try('}')) return true;
  do {
    if (!DimExpression(",}", &out->emplace_back())) return false;
  } while (lex_.Try(','));
  return lex_.Expect('}');
}

bool Parser::SliceValue(SliceSpec* out) {
  if (!lex_.Expect('{')) return false;
  if (lex_.Try('}')) return true;
  do {
    int64_t stride = 1;
    if (!lex_.Expect('[') || !DimExpression(":]", &out->starts.emplace_back()) || !lex_.Expect(':') ||
        !DimExpression(":]", &out->limits.emplace_back())) {
      return false;
    }
    if (lex_.Try(':')) {
      const std::optional<int64_t> v = lex_.Int();
      if (!v.has_value()) return false;
      stride = *v;
    }
    out->strides.push_back(stride);
    if (!lex_.Expect(']')) return false;
  } while (lex_.Try(','));
  return lex_.Expect('}');
}

// {size=2x2 stride=1x1 pad=0_1x0_1 lhs_dilate=1x1 rhs_dilate=1x1 rhs_reversal=0x1}
bool Parser::WindowValue(Window* out) {
  if (!lex_.Expect('{')) return false;
  while (!lex_.Try('}')) {
    const std::string_view key = lex_.Identifier();
    if (key.empty()) return lex_.Error("size, stride, pad, lhs_dilate, rhs_dilate, rhs_reversal or '}'");
    if (!lex_.Expect('=') || !WindowField(key, out)) return false;
  }
  return true;
}

bool Parser::WindowField(std::string_view key, Window* out) {
  const size_t start = lex_.position();
  lex_.SkipSpace();
  size_t i = 0;
  const bool first = out->dims.empty();
  do {
    if (first) out->dims.emplace_back();
    if (i >= out->dims.size()) break;
    WindowDim& w = out->dims[i++];
    const std::optional<int64_t> v = lex_.AdjacentInt();
    if (!v.has_value()) return false;
    if (key == "size") w.size = *v;
    else if (key == "stride") w.stride = *v;
    else if (key == "lhs_dilate") w.base_dilation = *v;
    else if (key == "rhs_dilate") w.window_dilation = *v;
    else if (key == "rhs_reversal") w.reversed = *v != 0;
    else if (key == "pad") {
      w.padding_low = *v;
      if (lex_.RawPeek() != '_') return lex_.Error("'_' and the padding behind");
      lex_.set_position(lex_.position() + 1);
      const std::optional<int64_t> high = lex_.AdjacentInt();
      if (!high.has_value()) return false;
      w.padding_high = *high;
    } else {
      return lex_.Error(start, "size, stride, pad, lhs_dilate, rhs_dilate or rhs_reversal",
                        absl::StrCat("'", Abs(key), "'"));
    }
    if (lex_.RawPeek() != 'x') {
      return i == out->dims.size() ||
             lex_.Error(start, absl::StrCat(out->dims.size(), " values of ", Abs(key)), absl::StrCat(i));
    }
    lex_.set_position(lex_.position() + 1);
  } while (true);
  return lex_.Error(start, absl::StrCat(out->dims.size(), " values of ", Abs(key)), "more");
}

// b01f_01io->b01f: what each dimension of input, kernel and output is.
bool Parser::DimLabelsValue(DimLabels* out) {
  lex_.SkipSpace();
  const size_t start = lex_.position();
  auto run = [&]() {
    const size_t from = lex_.position();
    for (char c = lex_.RawPeek(); (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z'); c = lex_.RawPeek()) {
      lex_.set_position(lex_.position() + 1);
    }
    return lex_.Between(from, lex_.position());
  };
  auto wrong = [&] {
    lex_.set_position(start);
    return lex_.Error("dimension labels like b01f_01io->b01f");
  };
  const std::string_view input = run();
  if (lex_.RawPeek() != '_') return wrong();
  lex_.set_position(lex_.position() + 1);
  const std::string_view kernel = run();
  if (lex_.RawPeek() != '-' || lex_.RawPeek(1) != '>') return wrong();
  lex_.set_position(lex_.position() + 2);
  const std::string_view output = run();
  const size_t rank = input.size();
  if (rank < 2 || rank > 12 || kernel.size() != rank || output.size() != rank) return wrong();
  auto assign = [&](std::string_view labels, char batch, char feature, int64_t* b, int64_t* f,
                    std::vector<int64_t>* spatial) {
    *b = *f = -1;
    spatial->assign(rank - 2, -1);
    for (size_t i = 0; i < rank; ++i) {
      int64_t* slot = nullptr;
      if (labels[i] == batch) slot = b;
      else if (labels[i] == feature) slot = f;
      else if (labels[i] >= '0' && labels[i] < static_cast<char>('0' + rank - 2)) slot = &(*spatial)[labels[i] - '0'];
      if (slot == nullptr || *slot != -1) return false;
      *slot = static_cast<int64_t>(i);
    }
    return true;  // rank labels, none twice: all given
  };
  return (assign(input, 'b', 'f', &out->input_batch, &out->input_feature, &out->input_spatial) &&
          assign(kernel, 'i', 'o', &out->kernel_input_feature, &out->kernel_output_feature, &out->kernel_spatial) &&
          assign(output, 'b', 'f', &out->output_batch, &out->output_feature, &out->output_spatial)) ||
         wrong();
}

// 0_0_1x-1_0: low_high[_interior] per dimension.
bool Parser::PaddingValue(PaddingConfig* out) {
  lex_.SkipSpace();
  // A scalar's padding has no dimensions, and no text.
  if (const char c = lex_.RawPeek(); c != '-' && !(c >= '0' && c <= '9')) return true;
  for (;;) {
    PaddingDim& d = out->dims.emplace_back();
    for (int field = 0; field < 3; ++field) {
      if (field > 0) {
        if (lex_.RawPeek() != '_') {
          if (field == 2) break;
          return lex_.Error("'_' and the padding behind");
        }
        lex_.set_position(lex_.position() + 1);
      }
      const std::optional<int64_t> v = lex_.AdjacentInt();
      if (!v.has_value()) return false;
      (field == 0 ? d.low : field == 1 ? d.high : d.interior) = *v;
    }
    if (lex_.RawPeek() != 'x') return true;
    lex_.set_position(lex_.position() + 1);
  }
}

// A computation read before, or one written in place as {instructions}.
bool Parser::ComputationRef(Scope* scope, Computation** out) {
  lex_.SkipSpace();
  const size_t position = lex_.position();
  if (lex_.Try('{')) {
    Depth depth(this);
    if (!depth.ok()) return false;
    Scope inner{module_->AddComputation(absl::StrCat(scope->computation->name(), "_body")), scope, {}, false};
    *out = inner.computation;
    return Body(&inner);
  }
  const std::string_view name = lex_.Name();
  if (name.empty()) return lex_.Error("a computation");
  const auto it = computations_.find(Abs(name));
  if (it == computations_.end()) {
    return lex_.Error(position, "a computation defined before", absl::StrCat("'", Abs(name), "'"));
  }
  *out = it->second;
  return true;
}

bool Parser::ComputationRefs(Scope* scope, std::vector<Computation*>* out) {
  if (!lex_.Try('{')) return ComputationRef(scope, &out->emplace_back());
  if (lex_.Try('}')) return true;
  do {
    if (!ComputationRef(scope, &out->emplace_back())) return false;
  } while (lex_.Try(','));
  return lex_.Expect('}');
}

// A quoted string, or JSON kept as it stands.
bool Parser::BackendConfig(Attributes* attrs) {
  if (lex_.Peek() == '"') {
    std::optional<std::string> text = lex_.Quoted();
    if (!text.has_value()) return false;
    attrs->set(Attr::kBackendConfig, *std::move(text));
    return true;
  }
  if (lex_.Peek() != '{') return lex_.Error("a quoted string or JSON");
  const std::optional<std::string_view> json = lex_.Balanced(/*braced=*/true);
  if (!json.has_value()) return false;
  attrs->backend_config_is_json = true;
  if (json->find("\"args\":") != std::string_view::npos) {
    absl::StatusOr<FrameworkCallSite> site = ReadCallSite(*json);
    if (site.ok() && ToString(*site) == *json) {
      attrs->set(Attr::kBackendConfig, FrameworkCallRef(*std::move(site)));
      return true;
    }
  }
  attrs->set(Attr::kBackendConfig, std::string(*json));
  return true;
}

bool Parser::MetadataValue(Metadata* out) {
  if (!lex_.Expect('{')) return false;
  while (!lex_.Try('}')) {
    const std::string_view key = lex_.Identifier();
    if (key.empty()) return lex_.Error("a metadata key or '}'");
    if (!lex_.Expect('=')) return false;
    std::string* text = key == "op_type"       ? &out->op_type
                        : key == "op_name"     ? &out->op_name
                        : key == "source_file" ? &out->source_file
                                               : nullptr;
    int64_t* number = key == "source_line"         ? &out->source_line
                      : key == "source_end_line"   ? &out->source_end_line
                      : key == "source_column"     ? &out->source_column
                      : key == "source_end_column" ? &out->source_end_column
                      : key == "stack_frame_id"    ? &out->stack_frame_id
                                                   : nullptr;
    if (text != nullptr) {
      std::optional<std::string> value = lex_.Quoted();
      if (!value.has_value()) return false;
      *text = *std::move(value);
    } else if (number != nullptr) {
      const std::optional<int64_t> value = lex_.Int();
      if (!value.has_value()) return false;
      *number = *value;
    } else {
      const std::optional<std::string_view> value = lex_.Balanced();
      if (!value.has_value()) return false;
      out->unknown.emplace_back(std::string(key), NormalizeSpace(*value));
    }
    lex_.Try(',');
  }
  return true;
}

bool Parser::ControlPredecessors(Scope* scope, Draft* draft) {
  if (!lex_.Expect('{')) return false;
  if (lex_.Try('}')) return true;
  do {
    lex_.SkipSpace();
    const size_t position = lex_.position();
    const std::string_view name = lex_.Name();
    const auto it = scope->names.find(Abs(name));
    if (name.empty() || it == scope->names.end()) {
      return lex_.Error(position, "an instruction defined before", absl::StrCat("'", Abs(name), "'"));
    }
    draft->control_predecessors.push_back(it->second);
    // Adding an edge looks through the ones there.
    if (draft->control_predecessors.size() > (1 << 14)) return lex_.Error(position, "at most 16384 predecessors", "more");
  } while (lex_.Try(','));
  return lex_.Expect('}');
}

// Our module path travels as one of the frontend attributes, {tenon_module_path="model.layer"}, and is taken out of a
// well-formed list that names it once.
bool Parser::FrontendAttributes(Draft* draft) {
  const std::optional<std::string_view> raw = lex_.Balanced(/*braced=*/true);
  if (!raw.has_value()) return false;
  std::string text = NormalizeSpace(*raw), rest;
  std::vector<std::string> paths;
  Lexer list(text);
  bool well_formed = list.Expect('{');
  while (well_formed && !list.Try('}')) {
    list.SkipSpace();
    const size_t start = list.position();
    const std::string_view key = list.Identifier();
    well_formed = !key.empty() && list.Expect('=');
    if (well_formed && key == "tenon_module_path") {
      std::optional<std::string> path = list.Quoted();
      well_formed = path.has_value();
      if (well_formed) paths.push_back(*std::move(path));
    } else if (well_formed) {
      well_formed = list.Balanced().has_value();
      rest.append(rest.empty() ? "" : ",").append(list.Between(start, list.position()));
    }
    well_formed = well_formed && (list.Try(',') || list.Peek() == '}');
  }
  if (well_formed && paths.size() == 1 && !paths[0].empty()) {
    draft->metadata.module_path = std::move(paths[0]);
    if (rest.empty()) return true;
    text = "{" + rest + "}";
  }
  draft->attrs.set(Attr::kFrontendAttributes, std::move(text));
  return true;
}

}  // namespace tenon::text
