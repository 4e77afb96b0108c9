// ProgramBuilder: the work behind BuildProgram (backends/program/program_builder.h). One use per program; the files of this folder
// are its chapters: builder.cc the order of things and the table of steps, memory.cc, steps.cc, control.cc, library.cc, outputs.cc.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "backends/contract/provider.h"
#include "backends/program/dim_slots.h"
#include "backends/program/program_builder.h"
#include "passes/lower/launches.h"
#include "passes/memory/buffer_plan.h"
#include "passes/memory/value_views.h"

namespace tenon {

class ProgramBuilder {
 public:
  ProgramBuilder(const Module& module, const Binding& binding, const LaunchPlans& plans,
                 absl::Span<const std::shared_ptr<const Target>> targets, std::vector<Remark>* remarks)
      : module_(module),
        binding_(binding),
        plans_(plans),
        targets_(targets),
        remarks_(remarks),
        dims_(&built_.program) {}
  ProgramBuilder(const ProgramBuilder&) = delete;

  absl::StatusOr<BuiltProgram> Build();

 private:
  Program& program() { return built_.program; }
  std::vector<Step>& steps() { return program().regions[region_].steps; }  // of the region being emitted
  static absl::Status Unexpected(const Instruction& op);

  // ---- builder.cc: declarations
  absl::Status DeclareInputs();
  absl::Status EmitStep(const Instruction& op);

  // ---- memory.cc
  // Entry parameters by their leaves in a row: tuples are what the caller brings one by one.
  const Binding::Parameter& ParameterOf(int64_t leaf) const { return binding_.parameters.at(leaf); }
  BufferKey RootLeaf(int64_t leaf) const;
  void FindDirectOutputs();
  absl::Status FindUpdates();
  absl::Status AddUpdateValues();
  absl::Status Plan();
  absl::StatusOr<Value> ValueOf(const Allocation& a);
  absl::StatusOr<int64_t> FrameworkConstant(const Binding::Parameter& p);
  absl::StatusOr<View> ViewOf(const StridedView& strided, PrimitiveType type);
  absl::StatusOr<View> ViewOf(BufferKey key);

  // ---- steps.cc
  Step NewStep(const Instruction& op) const;
  absl::Status EmitCopy(const Instruction& op);
  absl::Status AddCopy(const Instruction& op, const StridedView& from, const StridedView& to, PrimitiveType type);
  void Note(const Step& step, std::string_view kind, std::string reason);
  absl::Status EmitCopies(const Instruction& op, const LaunchPlan& plan);
  const LaunchPlan& PlanOf(const Instruction& op) const;
  absl::Status EmitPlanned(const Instruction& op);
  absl::Status EmitLaunches(const Instruction& op, const LaunchPlan& plan);
  absl::Status EmitKernel(const Instruction& op, const Launches::Launch& launch);
  absl::StatusOr<View> MemoryOf(const Instruction& op, const Launches::Memory& memory);
  absl::Status EmitCall(const Instruction& op, const LaunchPlan& plan, const PlannedCall& planned);
  FreeMemory RoomFor(const Instruction& op) const;
  View ErrorWord();
  int32_t ImageOf(int64_t space);
  int32_t KernelIndex(std::shared_ptr<const PlannedKernel> planned, int64_t space);
  absl::StatusOr<LaunchShape> LaunchOf(const LaunchDims& dims);
  absl::Status NumberArg(FrameworkArg* arg, FrameworkStep* call);
  absl::Status EmitFrameworkCall(const Instruction& op);

  // ---- library.cc
  absl::Status EmitLibrary(const Instruction& op);
  absl::StatusOr<View> NewDense(const StridedView& like, PrimitiveType type);

  // ---- control.cc: regions
  absl::Status EmitWhile(const Instruction& op);
  absl::Status EmitConditional(const Instruction& op);
  absl::StatusOr<int32_t> EmitRegion(const Computation& c);
  absl::Status EmitMoves(const Instruction& op, const std::vector<BufferMove>& moves, std::string_view why);
  absl::StatusOr<View> MoveEnd(BufferKey leaf, int32_t temporary, const StridedView& like, PrimitiveType type);

  // ---- outputs.cc
  absl::Status EmitOutputs();
  absl::Status PlaceOutput(int64_t k, const Binding::Output& out, OutputSpec* spec, absl::flat_hash_set<int64_t>* slots_given);
  const StridedView& AsMade(const BufferKey& key) const;
  const Instruction* ParameterUnder(const Instruction& op) const;  // whose memory it is, also by operators of views; or null
  static bool LiesAs(const StridedView& view, absl::Span<const Dim> sizes, absl::Span<const Dim> strides);
  static Dim StorageBytes(const Binding::Output& out);
  absl::Status EmitMutations();
  struct WriteBack {
    Binding::Mutation mutation;
    std::optional<View> held = std::nullopt;  // a copy of its source, where that is written before
  };
  absl::StatusOr<std::vector<WriteBack>> ReadersFirst();
  absl::StatusOr<View> Hold(const Binding::Mutation& m);
  std::optional<int64_t> InputReadBy(const Binding::Mutation& m) const;
  bool WritesItself(const Binding::Mutation& m) const;
  int32_t InputValue(int64_t input);

  const Module& module_;
  const Binding& binding_;
  const LaunchPlans& plans_;
  const absl::Span<const std::shared_ptr<const Target>> targets_;
  std::vector<Remark>* remarks_;  // may be null
  BuiltProgram built_;
  DimSlots dims_;
  int32_t region_ = 0;
  ValueViews views_;
  absl::flat_hash_map<int64_t, int64_t> direct_;          // root leaf -> graph output written in place
  absl::flat_hash_map<int64_t, int64_t> update_;          // root leaf -> parameter leaf of the input that it is written back to
  absl::flat_hash_map<BufferKey, int32_t> update_value_;  // what is made in an input's memory -> its value
  absl::flat_hash_map<std::pair<int64_t, std::string>, int32_t> kernel_of_;  // space, fingerprint -> kernel
  BufferPlan plan_;
  int32_t error_value_ = -1;
};

}  // namespace tenon
