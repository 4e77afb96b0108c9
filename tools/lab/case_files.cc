#include "tools/lab/case_files.h"

#include <fstream>
#include <iostream>
#include <iterator>
#include <map>

#include "absl/strings/str_cat.h"
#include "hlo/sizes.h"
#include "tools/lab/npy.h"
#include "tools/lab/regress.h"

namespace tenon::lab {
namespace {

void AppendArrays(const Literal& l, std::vector<std::pair<std::string, std::string>>* members) {
  if (l.shape().is_array()) members->emplace_back(absl::StrCat("in", members->size()), WriteNpy(l));
  for (const Literal& e : l.elements()) AppendArrays(e, members);
}

// The next arrays as a value of `shape`.
absl::StatusOr<Literal> Take(const Shape& shape, const std::vector<std::string>& arrays,
                             size_t* next) {
  if (shape.is_tuple()) {
    std::vector<Literal> elements;
    for (const Shape& e : shape.elements()) {
      TENON_ASSIGN_OR_RETURN(Literal element, Take(e, arrays, next));
      elements.push_back(std::move(element));
    }
    return Literal::Tuple(std::move(elements));
  }
  if (!shape.is_array()) return Literal(shape);
  if (*next >= arrays.size())
    return absl::InvalidArgumentError(absl::StrCat("wanted more than ", arrays.size(), " inputs"));
  const size_t n = (*next)++;
  absl::StatusOr<Literal> l = ParseNpy(arrays[n], shape);
  if (!l.ok())
    return absl::InvalidArgumentError(absl::StrCat("input ", n, ": ", l.status().message()));
  return l;
}

}  // namespace

absl::StatusOr<std::string> ReadText(const std::string& path) {
  if (path == "-") return std::string(std::istreambuf_iterator<char>(std::cin), {});
  std::ifstream in(path, std::ios::binary);
  if (!in) return absl::NotFoundError(absl::StrCat("cannot open ", path));
  return std::string(std::istreambuf_iterator<char>(in), {});
}

bool ReadInto(const std::string& path, std::string* to) {
  absl::StatusOr<std::string> text = ReadText(path);
  if (!text.ok()) return std::cerr << text.status().message() << "\n", false;
  *to = *std::move(text);
  return true;
}

absl::StatusOr<std::unique_ptr<Module>> ReadModule(const std::string& path,
                                                   const ParseOptions& options) {
  TENON_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  absl::StatusOr<std::unique_ptr<Module>> module = ParseModule(text, options);
  if (!module.ok())
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", module.status().message()));
  return module;
}

absl::StatusOr<std::vector<std::string>> ReadArrays(const std::string& npz) {
  TENON_ASSIGN_OR_RETURN(const std::string bytes, ReadText(npz));
  auto members = ReadZip(bytes);
  if (!members.ok())
    return absl::InvalidArgumentError(absl::StrCat(npz, ": ", members.status().message()));
  std::map<int64_t, std::string> numbered;
  for (const auto& [name, data] : *members) {
    const size_t digits = name.find_last_not_of("0123456789") + 1;
    if (digits < name.size()) numbered[std::atoll(name.c_str() + digits)] = data;
  }
  std::vector<std::string> arrays;
  if (numbered.size() == members->size()) {
    for (auto& [number, data] : numbered) arrays.push_back(std::move(data));
  } else {
    for (auto& [name, data] : *members) arrays.push_back(std::move(data));
  }
  return arrays;
}

absl::StatusOr<std::vector<Literal>> ReadArguments(const Module& module, const std::string& npz) {
  TENON_ASSIGN_OR_RETURN(const std::vector<std::string> arrays, ReadArrays(npz));
  std::vector<Literal> arguments;
  size_t next = 0;
  for (const Instruction* p : module.entry()->parameters()) {
    absl::StatusOr<Literal> argument = Take(p->shape(), arrays, &next);
    if (!argument.ok())
      return absl::InvalidArgumentError(absl::StrCat(npz, ": ", argument.status().message()));
    arguments.push_back(*std::move(argument));
  }
  if (next < arrays.size())
    return absl::InvalidArgumentError(
        absl::StrCat(npz, ": wanted ", next, " inputs, got ", arrays.size()));
  return arguments;
}

absl::StatusOr<std::string> WriteCase(const Module& module, absl::Span<const Literal> arguments,
                                      const std::string& path) {
  const size_t dot = path.rfind(".hlo");
  const bool hlo = dot != std::string::npos && dot + 4 == path.size();
  const std::string inputs = absl::StrCat(hlo ? path.substr(0, dot) : path, ".npz");
  std::vector<std::pair<std::string, std::string>> members;
  for (const Literal& l : arguments) AppendArrays(l, &members);
  std::ofstream text(path), zip(inputs, std::ios::binary);
  text << (HasSymbols(module) ? PrintRegress(module, arguments, "") : Print(module));
  zip << WriteZip(members);
  text.close();
  zip.close();
  if (!text.good()) return absl::InvalidArgumentError(absl::StrCat("cannot write ", path));
  if (!zip.good()) return absl::InvalidArgumentError(absl::StrCat("cannot write ", inputs));
  return inputs;
}

std::string JsonString(std::string_view s) {
  std::string out = "\"";
  for (const char c : s) {
    if (c == '"' || c == '\\')
      out += '\\', out += c;
    else if (c == '\n')
      out += "\\n";
    else if (static_cast<unsigned char>(c) < 0x20)
      absl::StrAppend(&out, "\\u00", absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
    else
      out += c;
  }
  return out + "\"";
}

}  // namespace tenon::lab
