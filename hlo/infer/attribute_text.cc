// Attributes that are kept as the text they came as: what that text must say. Labels attribute_c*.
//
// Not looked into, because XLA does not: backend_config, frontend_attributes, infeed_config, outfeed_config, custom_call_target.
#include <algorithm>
#include <charconv>
#include <optional>

#include "absl/strings/match.h"
#include "hlo/devices.h"
#include "hlo/infer/context.h"
#include "hlo/module.h"
#include "hlo/precision.h"
#include "hlo/text/lexer.h"
#include "hlo/text/text.h"

namespace tenon::infer {
namespace {

using Views = std::vector<std::string_view>;

std::string_view Trimmed(std::string_view s) {
  while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
  while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
  return s;
}

// The parts of {a, b, c}, split at commas outside of brackets and quotes; nullopt if the text is no such list.
std::optional<Views> Listed(std::string_view text, char open = '{', char close = '}') {
  text = Trimmed(text);
  if (text.size() < 2 || text.front() != open || text.back() != close) return std::nullopt;
  text = text.substr(1, text.size() - 2);
  Views parts;
  std::string nesting;
  bool quoted = false;
  size_t start = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"' && (i == 0 || text[i - 1] != '\\')) quoted = !quoted;
    if (quoted) continue;
    if (c == '{' || c == '[' || c == '(') nesting.push_back(c == '{' ? '}' : c == '[' ? ']' : ')');
    if (c == '}' || c == ']' || c == ')') {
      if (nesting.empty() || nesting.back() != c) return std::nullopt;
      nesting.pop_back();
    }
    if (c == ',' && nesting.empty()) {
      parts.push_back(Trimmed(text.substr(start, i - start)));
      start = i + 1;
    }
  }
  if (!nesting.empty() || quoted) return std::nullopt;
  if (!parts.empty() || !Trimmed(text.substr(start)).empty()) parts.push_back(Trimmed(text.substr(start)));
  return parts;
}

std::optional<int64_t> Number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool AllNumbers(const Views& parts) {
  return std::all_of(parts.begin(), parts.end(), [](std::string_view p) { return Number(p).has_value(); });
}

struct Request {
  const Inference& in;
  const Shape& result;
  std::string_view text;
};

absl::string_view Abs(std::string_view s) { return {s.data(), s.size()}; }

#define TENON_WANT_TEXT(condition, label, wanted) TENON_WANT(condition, label, wanted, Abs(r.text))

absl::Status Groups(const Request& r) {
  const auto parsed = ParseReplicaGroups(r.text);
  TENON_WANT(parsed.ok(), "attribute_c1", "replica_groups={{0,1},...}, [groups,size]<=[dims]T(perm) or mesh['a'=2,...] {'a',...}",
             Abs(r.text), ": ", parsed.status().message());
  return absl::OkStatus();
}

absl::Status Pairs(const Request& r) {
  const auto parsed = ParseSourceTargetPairs(r.text);
  TENON_WANT(parsed.ok(), "attribute_c2", "source_target_pairs={{source,target},...}, no source and no target twice", Abs(r.text), ": ",
             parsed.status().message());
  return absl::OkStatus();
}

absl::Status OperandPrecisions(const Request& r) {
  static constexpr std::string_view kNames[] = {"default", "high", "highest", "packed_nibble"};
  const std::optional<Views> parts = Listed(r.text);
  bool known = parts.has_value() && static_cast<int64_t>(parts->size()) <= r.in.count();
  for (size_t k = 0; known && k < parts->size(); ++k) known = absl::c_linear_search(kNames, (*parts)[k]);
  TENON_WANT_TEXT(known, "attribute_c3", "operand_precision={p,...}, one of default, high, highest, packed_nibble per operand");
  return absl::OkStatus();
}

absl::Status Algorithm(const Request& r) {
  TENON_WANT_TEXT(IsDotAlgorithm(r.text), "attribute_c4", "an algorithm of XLA's, dot_f32_f32_f32 and the like");
  return absl::OkStatus();
}

absl::Status Accuracy(const Request& r) {
  const auto parsed = ParseResultAccuracy(r.text);
  TENON_WANT(parsed.ok(), "attribute_c5", "a result_accuracy", parsed.status().message());
  return absl::OkStatus();
}

// L.1@2:4 or R.0@2:4, joined by '_': 2 of 4 along dimension 1 of the left, dimension 0 of the right operand.
absl::Status Sparsity(const Request& r) {
  Lexer lex(r.text);
  bool fits = true;
  int sides = 0;
  do {
    const char side = lex.RawPeek();
    const bool starts = (side == 'L' || side == 'R') && lex.RawPeek(1) == '.';
    if (starts) lex.set_position(lex.position() + 2);
    const auto next = [&](char after) {
      const std::optional<int64_t> v = starts ? lex.AdjacentInt() : std::nullopt;
      const bool right = v.has_value() && *v >= 0 && (after == '\0' || lex.RawPeek() == after);
      if (right && after != '\0') lex.set_position(lex.position() + 1);
      return right;
    };
    fits = next('@') && next(':') && next('\0');
    ++sides;
    if (fits && lex.RawPeek() == '_') {
      lex.set_position(lex.position() + 1);
      continue;
    }
    break;
  } while (true);
  TENON_WANT_TEXT(fits && sides <= 2 && lex.AtEnd(), "attribute_c6", "sparsity L.dim@n:m, R.dim@n:m or both joined by _");
  return absl::OkStatus();
}

// {0,1} inside of a shape; nullptr: no such place.
const Shape* At(const Shape& shape, std::string_view index) {
  const std::optional<Views> path = Listed(index);
  if (!path.has_value() || !AllNumbers(*path)) return nullptr;
  const Shape* s = &shape;
  for (std::string_view part : *path) {
    const int64_t k = *Number(part);
    if (!s->is_tuple() || k < 0 || k >= static_cast<int64_t>(s->elements().size())) return nullptr;
    s = &s->element(k);
  }
  return s;
}

// {{0}: (1, {}), ...}: result {0} shares memory with operand 1.
absl::Status Aliasing(const Request& r) {
  const std::optional<Views> entries = Listed(r.text);
  TENON_WANT_TEXT(entries.has_value(), "attribute_c7", "output_to_operand_aliasing={{result}: (operand, {place}), ...}");
  for (std::string_view entry : *entries) {
    const size_t colon = entry.find(':');
    const Shape* result = colon == std::string_view::npos ? nullptr : At(r.result, Trimmed(entry.substr(0, colon)));
    const std::optional<Views> to = result == nullptr ? std::nullopt : Listed(entry.substr(colon + 1), '(', ')');
    const std::optional<int64_t> operand = to.has_value() && to->size() == 2 ? Number((*to)[0]) : std::nullopt;
    const Shape* shared = operand.has_value() && *operand >= 0 && *operand < r.in.count() ? At(r.in.shape(*operand), (*to)[1]) : nullptr;
    TENON_WANT_TEXT(shared != nullptr && KnownCompatible(*shared, *result), "attribute_c7",
                    "output_to_operand_aliasing={{result}: (operand, {place}), ...} of places of one shape");
  }
  return absl::OkStatus();
}

// Shapes of constant dimensions, which is all that XLA writes here.
absl::StatusOr<Shape> ConstantShape(std::string_view text) {
  DimTable table;
  TENON_ASSIGN_OR_RETURN(Shape shape, ParseShape(text, &table));
  for (const Shape& leaf : FlattenShape(shape)) {
    if (!leaf.is_static()) return absl::InvalidArgumentError("a symbolic dimension");
  }
  return shape;
}

absl::Status OperandLayouts(const Request& r) {
  const std::optional<Views> shapes = Listed(r.text);
  bool fit = shapes.has_value() && static_cast<int64_t>(shapes->size()) == r.in.count();
  for (int64_t k = 0; fit && k < r.in.count(); ++k) {
    const absl::StatusOr<Shape> shape = ConstantShape((*shapes)[k]);
    fit = shape.ok() && KnownCompatible(*shape, r.in.shape(k));
  }
  TENON_WANT_TEXT(fit, "attribute_c8", absl::StrCat("operand_layout_constraints with the shapes of the operands ", OperandShapes(r.in)));
  return absl::OkStatus();
}

absl::Status OutfeedShape(const Request& r) {
  const absl::StatusOr<Shape> shape = ConstantShape(r.text);
  TENON_WANT_TEXT(shape.ok() && r.in.count() > 0 && KnownCompatible(*shape, r.in.shape(0)), "attribute_c9",
                  "outfeed_shape to be the first operand's");
  return absl::OkStatus();
}

absl::Status Replication(const Request& r) {
  const std::optional<Views> parts = Listed(r.text);
  const bool words = parts.has_value() && std::all_of(parts->begin(), parts->end(), [](auto p) { return p == "true" || p == "false"; });
  TENON_WANT_TEXT(words && parts->size() == FlattenShape(r.result).size(), "attribute_c10",
                  absl::StrCat("parameter_replication with true or false for each of ", FlattenShape(r.result).size(), " arrays"));
  return absl::OkStatus();
}

// {visualizing_index=0, name=1.5, ...}
absl::Status Statistics(const Request& r) {
  const std::optional<Views> parts = Listed(r.text);
  bool fit = parts.has_value();
  for (size_t k = 0; fit && k < parts->size(); ++k) {
    const std::string_view part = (*parts)[k];
    const size_t equals = part.find('=');
    double value = 0;
    const std::string_view number = equals == std::string_view::npos ? "" : Trimmed(part.substr(equals + 1));
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
    fit = equals != 0 && !number.empty() && error == std::errc() && end == number.data() + number.size();
  }
  TENON_WANT_TEXT(fit, "attribute_c11", "statistics={name=number, ...}");
  return absl::OkStatus();
}

// A tree of names and places: {{"a"}, {"b" {1}}}; [synthetic_call] and the like may stand in front of a name.
bool IsOrigin(std::string_view text, int depth) {
  const std::optional<Views> parts = Listed(text);
  if (!parts.has_value() || depth > 64) return false;
  return std::all_of(parts->begin(), parts->end(), [&](std::string_view part) {
    if (part.empty() || part.front() == '{') return part.empty() || IsOrigin(part, depth + 1);
    Lexer lex(part);
    if (lex.Peek() == '[' && !lex.Balanced().has_value()) return false;
    if (lex.Peek() == '"' && !lex.Quoted().has_value()) return false;
    if (lex.AtEnd()) return true;
    const std::optional<Views> place = Listed(Trimmed(part.substr(lex.position())));
    return place.has_value() && AllNumbers(*place);
  });
}

absl::Status Origin(const Request& r) {
  TENON_WANT_TEXT(IsOrigin(r.text, 0), "attribute_c12", "origin={...}, a tree of \"instruction\" {place}");
  return absl::OkStatus();
}

std::optional<int64_t> ProductOf(std::string_view list) {
  const std::optional<Views> parts = Listed(list, '[', ']');
  if (!parts.has_value() || !AllNumbers(*parts)) return std::nullopt;
  int64_t product = 1;
  for (std::string_view part : *parts) {
    const int64_t size = *Number(part);
    if (size < 1 || product > kMaxDim / size) return std::nullopt;
    product *= size;
  }
  return product;
}

// devices=[2,2]0,1,2,3 or devices=[2,2]<=[4] or devices=[2,2]<=[2,2]T(1,0): as many devices as tiles.
bool IsDeviceTile(std::string_view text) {
  const size_t close = text.find(']');
  if (close == std::string_view::npos) return false;
  const std::optional<int64_t> tiles = ProductOf(text.substr(0, close + 1));
  std::string_view devices = text.substr(close + 1);
  if (!tiles.has_value()) return false;
  if (!devices.starts_with("<=")) {
    const std::string list = absl::StrCat("{", Abs(devices), "}");
    const std::optional<Views> parts = Listed(list);
    return parts.has_value() && AllNumbers(*parts) && static_cast<int64_t>(parts->size()) == *tiles;
  }
  devices.remove_prefix(2);
  const size_t end = devices.find(']');
  if (end == std::string_view::npos || ProductOf(devices.substr(0, end + 1)) != tiles) return false;
  const std::string_view permutation = devices.substr(end + 1);
  if (permutation.empty()) return true;
  const std::optional<Views> dims = Listed(devices.substr(0, end + 1), '[', ']');
  const std::optional<Views> order = permutation.starts_with("T") ? Listed(permutation.substr(1), '(', ')') : std::nullopt;
  std::vector<bool> seen(dims->size(), false);
  if (!order.has_value() || order->size() != dims->size() || !AllNumbers(*order)) return false;
  for (std::string_view part : *order) {
    const int64_t k = *Number(part);
    if (k < 0 || k >= static_cast<int64_t>(seen.size()) || seen[k]) return false;
    seen[k] = true;
  }
  return true;
}

// One array's sharding, between its braces: words that XLA's printer writes, separated by blanks.
bool IsOneSharding(std::string_view text) {
  static constexpr std::string_view kWords[] = {"replicated", "manual",     "unknown",   "unreduced", "maximal",
                                                "shard_as",   "shard_like", "last_tile_dim_replicate"};
  text = Trimmed(text);
  if (text.empty()) return false;
  if (text.starts_with("mesh[") || text.starts_with("maximal_mesh[")) return true;  // its parts were balanced; XLA reads names into it
  Lexer lex(text);
  while (!lex.AtEnd()) {
    if (const char c = lex.Peek(); c >= '0' && c <= '9') {  // of shard_as, shard_like
      if (!lex.Int().has_value()) return false;
      continue;
    }
    const std::string_view word = lex.Identifier();
    if (word.empty()) return false;
    if (!lex.Try('=')) {
      if (!absl::c_linear_search(kWords, word)) return false;
      continue;
    }
    lex.SkipSpace();
    const size_t start = lex.position();
    size_t end = text.find(' ', start);
    if (word == "metadata" || word == "last_tile_dims") {
      if (!lex.Balanced(/*braced=*/true).has_value()) return false;
      continue;
    }
    if (end == std::string_view::npos) end = text.size();
    const std::string_view value = text.substr(start, end - start);
    if (word == "device" ? !Number(value).has_value() : word == "devices" ? !IsDeviceTile(value) : true) return false;
    lex.set_position(end);
  }
  return true;
}

bool IsSharding(std::string_view text) {
  text = Trimmed(text);
  if (text.size() < 2 || text.front() != '{' || text.back() != '}') return false;
  const std::string_view inside = Trimmed(text.substr(1, text.size() - 2));
  if (inside.empty() || inside.front() != '{') return inside.empty() || IsOneSharding(inside);
  const std::optional<Views> parts = Listed(text);  // of a tuple
  return parts.has_value() && std::all_of(parts->begin(), parts->end(), IsSharding);
}

absl::Status Sharding(const Request& r) {
  TENON_WANT_TEXT(IsSharding(r.text), "attribute_c13",
                  "sharding={replicated}, {maximal device=N}, {devices=[tiles]devices ...} with a device per tile, or a tuple of them");
  return absl::OkStatus();
}

// {kind="sharding", entry={...}, exit={...}}
absl::Status Domain(const Request& r) {
  const std::optional<Views> parts = Listed(r.text);
  bool fit = parts.has_value() && parts->size() == 3 && (*parts)[0].starts_with("kind=\"") && (*parts)[1].starts_with("entry=") &&
             (*parts)[2].starts_with("exit=");
  if (fit && (*parts)[0] == "kind=\"sharding\"") fit = IsSharding((*parts)[1].substr(6)) && IsSharding((*parts)[2].substr(5));
  TENON_WANT_TEXT(fit, "attribute_c14", "domain={kind=\"...\", entry={...}, exit={...}}");
  return absl::OkStatus();
}

struct Row {
  Attr attr;
  absl::Status (*check)(const Request&);
};
constexpr Row kRows[] = {
    {Attr::kReplicaGroups, Groups},
    {Attr::kSourceTargetPairs, Pairs},
    {Attr::kOperandPrecision, OperandPrecisions},
    {Attr::kAlgorithm, Algorithm},
    {Attr::kResultAccuracy, Accuracy},
    {Attr::kSparsity, Sparsity},
    {Attr::kOutputToOperandAliasing, Aliasing},
    {Attr::kOperandLayoutConstraints, OperandLayouts},
    {Attr::kOutfeedShape, OutfeedShape},
    {Attr::kParameterReplication, Replication},
    {Attr::kStatistics, Statistics},
    {Attr::kOrigin, Origin},
    {Attr::kSharding, Sharding},
    {Attr::kDomain, Domain},
};

}  // namespace

absl::Status CheckAttributeTexts(const Inference& in, const Shape& result) {
  for (const auto& [attr, value] : in.attrs) {
    if (!std::holds_alternative<std::string>(value)) continue;
    for (const Row& row : kRows) {
      if (row.attr == attr) TENON_RETURN_IF_ERROR(row.check({in, result, std::get<std::string>(value)}));
    }
  }
  return absl::OkStatus();
}

}  // namespace tenon::infer
