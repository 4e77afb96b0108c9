// Clusters: which instructions of a computation will share a kernel. Decided here, carried out by fuse.cc.
//
// One walk from the results to the parameters. An instruction joins the cluster of all its users; or, when it has others as well,
// one of its clusters as a further result (same iteration space, no cycle); or is computed again in each (movement, scalars,
// widening converts: bounded); or starts a cluster of its own. View ops (fused_form.h) are computed in each cluster that reads
// them and stay outside for the rest.
#pragma once

#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "passes/fusion/fused_form.h"
#include "passes/fusion/roles.h"
#include "passes/memory/strided_view.h"
#include "passes/pass.h"

namespace tenon {

struct Cluster {
  FusionForm form = FusionForm::kLoop;
  RowDomain domain;                      // kRow
  Instruction* lead = nullptr;           // the first result: its shape is the iteration space of a loop
  std::vector<Instruction*> members;     // users before operands
  absl::flat_hash_set<const Instruction*> contains;
  absl::flat_hash_set<const Instruction*> results;  // members used outside
  int64_t cost = 0;                      // estimated instructions to emit
};

// How a kernel can walk the operand of this reduce: kGeneral too where the elements' order matters.
ReduceKind KindOfReduce(const Instruction& reduce, const PassContext& context);

// The form of a kernel that holds this instruction alone.
FusionForm SingleForm(const Instruction& op, const PassContext& context);

class Clusters {
 public:
  Clusters(Computation* computation, PassContext& context);
  void Form();

  const std::vector<std::unique_ptr<Cluster>>& all() const { return clusters_; }
  // Clusters that compute `op` (several when it is cheap).
  absl::Span<Cluster* const> homes(const Instruction* op) const;
  bool stays_outside(const Instruction* op) const { return outside_.contains(op); }

 private:
  struct Needs {
    std::vector<Cluster*> clusters;
    bool outside = false;
  };
  Needs NeedsOf(const Instruction* op) const;
  void Place(Instruction* op);
  void PlaceCheap(Instruction* op, const Needs& needs);
  bool TryJoin(Instruction* op, Cluster* c, bool as_result);
  bool CanJoin(const Instruction* op, const Cluster& c, bool as_result, FusionForm* form, std::string* why) const;
  bool IsEpilogueOf(const Cluster& c, const Instruction& product) const;
  bool WidensWhatIsPacked(const Instruction& op, const Cluster& c) const;
  bool FeedsUpdates(const Instruction& op, const Instruction& scatter, const Cluster& c) const;
  bool IsPieceOfPieces(const Instruction& op, const Cluster& c) const;
  bool IsReadByIndex(const Instruction& op, const Cluster& c) const;
  bool GoesOnAlongLastDim(const Instruction& op, const Cluster& c) const;
  bool IndexesRows(const Instruction& op, const Cluster& c, FusionForm form, const RowDomain& domain) const;
  bool SumCanFollow(const Instruction& sum, const Cluster& c) const;
  bool ReduceCanJoin(const Instruction* reduce, const Cluster& c, FusionForm* form, std::string* why) const;
  bool RowsStayApart(const Instruction* reduce, const Cluster& c, const RowDomain& domain) const;
  bool MergesRows(const Instruction& op, const Cluster& c) const;
  bool FindsPlaces(const Instruction& op) const;
  bool FedByDear(const Instruction& op, Dim work) const;
  bool MatchesAsResult(const Instruction* op, const Cluster& c) const;
  void AddReaders(const Instruction* op, const Cluster* c, std::vector<const Instruction*>* readers) const;
  bool UsedOutside(const Instruction* op, const Cluster* c) const;
  bool LeadsTo(const Cluster* from, const Cluster* to, bool directly) const;
  bool WouldCycle(const Instruction* op, const Cluster* c) const;
  bool Reaches(std::vector<const Instruction*> from, const Cluster* target) const;
  void Add(Instruction* op, Cluster* c, bool as_result);
  void Start(Instruction* op, bool as_result);
  void MergeSiblings();
  void MergeLoops();
  bool TryMerge(Cluster* a, Cluster* b);
  bool MergeAMaker(Cluster* reader);
  bool TryMergeLoops(Cluster* maker, Cluster* reader);
  void MergeBehindRows();
  bool TryMergeBehindRows(Cluster* maker, Cluster* reader);
  bool ReadSameRows(const Cluster& maker, const Cluster& reader) const;
  bool ReadsInPlace(const Cluster& reader, const Cluster& maker) const;
  void Absorb(Cluster* a, Cluster* b);

  bool Fusible(const Instruction& op) const;
  bool Cheap(const Instruction& op) const;
  int64_t CostOf(const Instruction& op) const;

  Computation* computation_;
  PassContext& context_;
  mutable ViewCache views_;
  std::vector<std::unique_ptr<Cluster>> clusters_;
  absl::flat_hash_map<const Instruction*, std::vector<Cluster*>> homes_;
  absl::flat_hash_set<const Instruction*> outside_;
};

}  // namespace tenon
