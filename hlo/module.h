// Module: computations, one of them the entry, and what HLO text says of a module as a whole.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "hlo/computation.h"

namespace tenon {

// input_output_alias={ {output_index}: (parameter, {parameter_index}, may-alias|must-alias) }
struct InputOutputAlias {
  std::vector<int64_t> output_index;
  int64_t parameter = 0;
  std::vector<int64_t> parameter_index;
  bool must = false;
  bool operator==(const InputOutputAlias&) const = default;
};

class Module {
 public:
  explicit Module(std::string name = "module");
  Module(std::string name, std::shared_ptr<DimTable> dims);  // of the symbols of another one
  ~Module();
  Module(const Module&) = delete;

  std::string& name() { return name_; }
  const std::string& name() const { return name_; }
  DimTable& dims() const { return *dims_; }
  const std::shared_ptr<DimTable>& shared_dims() const { return dims_; }

  Computation* entry() const { return entry_; }
  void set_entry(Computation* entry) { entry_ = entry; }
  Computation* AddComputation(std::string name);  // the name is made unique
  // Callees before callers, entry last; unreachable ones included.
  std::vector<Computation*> computations() const;
  // The shared two-parameter scalar computation of `opcode` over `type`, made on first use ("add.f32").
  Computation* ScalarComputation(Opcode opcode, PrimitiveType type);
  void RemoveComputation(Computation* computation);
  int64_t RemoveUnreachableComputations();
  int64_t instruction_count() const;

  std::string UniqueInstructionName(std::string_view base);
  void ReleaseInstructionName(const std::string&) {}
  int64_t NextId() { return next_id_++; }

  std::unique_ptr<Module> Clone() const;

  bool is_scheduled = false;
  std::vector<InputOutputAlias> aliases;
  // entry_computation_layout={(params)->result}: shapes with layouts; empty: the instructions' own.
  std::optional<std::pair<std::vector<Shape>, Shape>> entry_layout;
  // Other module attributes (replica_count, buffer_donor, frontend_attributes, ...) as (key, verbatim text).
  std::vector<std::pair<std::string, std::string>> attributes;
  // FileNames/FunctionNames/FileLocations/StackFrames tables, verbatim lines.
  std::vector<std::string> origin_tables;

  std::string ToString() const;

 private:
  void Forget(absl::FunctionRef<bool(const Computation*)> dies);

  std::string name_;
  std::shared_ptr<DimTable> dims_;
  std::vector<std::unique_ptr<Computation>> computations_;
  Computation* entry_ = nullptr;
  int64_t next_id_ = 0;
  absl::flat_hash_map<std::string, int64_t> instruction_names_, computation_names_;
  absl::flat_hash_map<std::pair<Opcode, PrimitiveType>, Computation*> scalar_computations_;
};

// Structural equality: same graph up to names and ids (metadata ignored). On a difference `why` says where.
bool StructurallyEqual(const Module& a, const Module& b, std::string* why = nullptr);
bool StructurallyEqual(const Computation& a, const Computation& b, std::string* why = nullptr);

}  // namespace tenon
