#include "tools/hlo-run/arrays.h"

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "tools/lab/case_files.h"
#include "tools/lab/npy.h"

namespace tenon::run {
namespace {

absl::StatusOr<std::vector<std::string>> InputFiles(const Options& o) {
  if (!o.inputs.empty()) return lab::ReadArrays(o.inputs);
  std::vector<std::string> arrays;
  for (const std::string& path : o.input_files) {
    absl::StatusOr<std::string> bytes = lab::ReadText(path);
    if (!bytes.ok()) return bytes.status();
    arrays.push_back(*std::move(bytes));
  }
  return arrays;
}

Literal RandomArray(const Shape& shape, std::mt19937_64& rng) {
  Literal l(Shape::Array(shape.element_type(), shape.constant_dims()));
  const PrimitiveType type = l.type();
  auto unit = [&] { return static_cast<double>(rng() >> 11) * 0x1p-53; };
  if (IsComplex(type)) {
    Literal parts(Shape::Array(ComplexComponent(type), {2 * l.num_elements()}));
    for (int64_t i = 0; i < parts.num_elements(); ++i) parts.SetFromDouble(i, 2 * unit() - 1);
    if (l.num_elements() > 0) std::copy_n(parts.bytes(), l.size_bytes(), l.mutable_bytes());
    return l;
  }
  for (int64_t i = 0; i < l.num_elements(); ++i) {
    if (IsFloat(type)) {
      l.SetFromDouble(i, 2 * unit() - 1);
    } else {
      const int64_t values = type == PrimitiveType::kPred || BitWidth(type) == 1 ? 2 : BitWidth(type) == 2 ? 2 : 4;
      l.SetFromInt64(i, static_cast<int64_t>(rng() % values));
    }
  }
  return l;
}

// One argument from files (its leaves in order) or random.
absl::StatusOr<Literal> Argument(const Shape& shape, std::vector<std::string>* files, size_t* next,
                                 std::mt19937_64& rng) {
  if (shape.is_tuple()) {
    std::vector<Literal> elements;
    for (const Shape& e : shape.elements()) {
      absl::StatusOr<Literal> element = Argument(e, files, next, rng);
      if (!element.ok()) return element.status();
      elements.push_back(*std::move(element));
    }
    return Literal::Tuple(std::move(elements));
  }
  if (!shape.is_array() || !shape.is_static()) {
    return absl::UnimplementedError(absl::StrCat("no input of shape ", shape.ToString(), " can be made"));
  }
  if (files->empty()) return RandomArray(shape, rng);
  if (*next >= files->size()) {
    return absl::InvalidArgumentError(absl::StrCat("wanted more than ", files->size(), " inputs"));
  }
  absl::StatusOr<Literal> l = ParseNpy((*files)[*next], shape);
  if (!l.ok()) return absl::InvalidArgumentError(absl::StrCat("input ", *next, ": ", l.status().message()));
  ++*next;
  return l;
}

}  // namespace

absl::StatusOr<std::vector<Literal>> Arguments(const Module& module, const Options& o) {
  absl::StatusOr<std::vector<std::string>> files = InputFiles(o);
  if (!files.ok()) return files.status();
  std::mt19937_64 rng(o.seed);
  std::vector<Literal> args;
  size_t next = 0;
  for (const Instruction* p : module.entry()->parameters()) {
    absl::StatusOr<Literal> arg = Argument(p->shape(), &*files, &next, rng);
    if (!arg.ok()) return arg.status();
    args.push_back(*std::move(arg));
  }
  if (next < files->size()) {
    return absl::InvalidArgumentError(absl::StrCat("wanted ", next, " inputs, got ", files->size()));
  }
  return args;
}

absl::Status Save(const std::string& path, const std::vector<Literal>& outputs) {
  std::vector<std::pair<std::string, std::string>> members;
  for (size_t i = 0; i < outputs.size(); ++i) members.emplace_back(absl::StrCat("out", i), WriteNpy(outputs[i]));
  std::ofstream out(path, std::ios::binary);
  out << WriteZip(members);
  return out.good() ? absl::OkStatus() : absl::InternalError(absl::StrCat("cannot write ", path));
}

absl::StatusOr<std::vector<Literal>> Expected(const std::string& path, const Module& module) {
  absl::StatusOr<std::vector<std::string>> arrays = lab::ReadArrays(path);
  if (!arrays.ok()) return arrays.status();
  const std::vector<Shape> leaves = FlattenShape(module.entry()->root()->shape());
  if (arrays->size() != leaves.size()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": wanted ", leaves.size(), " outputs, got ", arrays->size()));
  }
  std::vector<Literal> want;
  for (size_t i = 0; i < leaves.size(); ++i) {
    absl::StatusOr<Literal> l = ParseNpy((*arrays)[i], leaves[i]);
    if (!l.ok()) return absl::InvalidArgumentError(absl::StrCat("expected output ", i, ": ", l.status().message()));
    want.push_back(*std::move(l));
  }
  return want;
}

}  // namespace tenon::run
