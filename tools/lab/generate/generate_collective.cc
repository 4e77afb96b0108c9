// Collectives of one replica: every group is {0}.
#include "tools/lab/generate/generator.h"

namespace tenon::lab {
namespace {

// Attributes that the opcode takes.
Attributes Groups(Scope& s, Opcode opcode, const Value& x) {
  Attributes attrs;
  const OpInfo& info = InfoOf(opcode);
  if (info.allows(Attr::kReplicaGroups)) attrs.set(Attr::kReplicaGroups, std::string(s.random().OneIn(2) ? "{{0}}" : "{}"));
  if (info.allows(Attr::kChannelId) && s.random().OneIn(2)) attrs.set(Attr::kChannelId, int64_t{1});
  if (info.allows(Attr::kToApply)) attrs.set(Attr::kToApply, RandomCombiner(s, x.type()).computation);
  if (info.allows(Attr::kSourceTargetPairs))
    attrs.set(Attr::kSourceTargetPairs, std::string(s.random().OneIn(4) && x.type() != PrimitiveType::kF8E8M0FNU ? "{}" : "{{0,0}}"));
  return attrs;
}

bool Same(Scope& s, Opcode opcode) {
  const bool reduces = InfoOf(opcode).allows(Attr::kToApply);
  const Value x = s.OfRank(1, 4, [](PrimitiveType) { return true; });
  Attributes attrs = Groups(s, opcode, x);
  const bool along = InfoOf(opcode).allows(Attr::kDimensions);
  if (along) attrs.set(Attr::kDimensions, std::vector<int64_t>{s.random().Below(x.rank())});
  const bool declared = opcode == Opcode::kAllGather || opcode == Opcode::kReduceScatter;
  const std::optional<Shape> shape = declared ? std::optional<Shape>(Shape(x.type(), x.dims())) : std::nullopt;
  Instruction* y = s.Try(opcode, {x.op}, attrs, shape);
  if (y == nullptr) return false;
  const bool permuted = opcode == Opcode::kCollectivePermute;
  s.Add(y, x.exact, reduces || permuted ? kNotSmall : x.small);
  return true;
}

bool AllReduceStart(Scope& s, Opcode) {
  const Value x = s.Exact();
  Instruction* start = s.Try(Opcode::kAllReduceStart, {x.op}, Groups(s, Opcode::kAllReduceStart, x));
  if (start == nullptr) return false;
  s.Add(s.b().Make(Opcode::kAllReduceDone, {start}, {}));
  return true;
}

bool AllGatherStart(Scope& s, Opcode) {
  const Value x = s.OfRank(1, 4, [](PrimitiveType) { return true; });
  const Shape shape(x.type(), x.dims());
  Attributes attrs = Groups(s, Opcode::kAllGatherStart, x);
  attrs.set(Attr::kDimensions, std::vector<int64_t>{s.random().Below(x.rank())});
  Instruction* start = s.Try(Opcode::kAllGatherStart, {x.op}, attrs, Shape::Tuple({shape, shape}));
  if (start == nullptr) return false;
  s.Add(s.b().Make(Opcode::kAllGatherDone, {start}, {}));
  return true;
}

bool CollectivePermuteStart(Scope& s, Opcode) {
  const Value x = s.Exact();
  const Shape shape(x.type(), x.dims()), context = Shape::Scalar(PrimitiveType::kU32);
  const std::vector<Shape> parts =
      s.random().OneIn(2) ? std::vector<Shape>{shape, shape} : std::vector<Shape>{shape, shape, context, context};
  Instruction* start = s.Try(Opcode::kCollectivePermuteStart, {x.op}, Groups(s, Opcode::kCollectivePermuteStart, x), Shape::Tuple(parts));
  if (start == nullptr) return false;
  s.Add(s.b().Make(Opcode::kCollectivePermuteDone, {start}, {}));
  return true;
}

bool Id(Scope& s, Opcode opcode) { return s.Add(s.b().Make(opcode, {}, {})), true; }

// One chunk of rows, from here to here.
bool RaggedAllToAll(Scope& s, Opcode opcode) {
  const Value x = s.OfRank(1, 3, [](PrimitiveType) { return true; });
  std::vector<Dim> dims = x.dims();
  dims[0] = s.Size();
  if (!s.Fits(dims)) return false;
  if (s.WouldBeRefused(dims) || s.WouldBeRefused(x.dims())) return false;
  const Value out = s.Shaped(x.type(), dims);
  const int64_t rows = Scope::Least(x.dim(0)), out_rows = Scope::Least(dims[0]);
  const int64_t count = s.random().Between(0, std::min(rows, out_rows));
  const int64_t from = s.random().Between(0, rows - count), to = s.random().Between(0, out_rows - count);
  std::vector<Instruction*> operands = {x.op, out.op};
  for (int64_t v : {from, count, to, count}) {
    const int64_t one[] = {v};
    operands.push_back(s.b().Constant(Literal::FromSpan<int64_t>(PrimitiveType::kS64, {1}, one)));
  }
  Instruction* y = s.Try(opcode, operands, Groups(s, opcode, x));
  return y != nullptr && (s.Add(y), true);
}

constexpr Row kRows[] = {
    {Opcode::kAllGather, Same},
    {Opcode::kAllGatherStart, AllGatherStart},
    {Opcode::kAllGatherDone, AllGatherStart},
    {Opcode::kAllReduce, Same},
    {Opcode::kAllReduceStart, AllReduceStart},
    {Opcode::kAllReduceDone, AllReduceStart},
    {Opcode::kAllToAll, Same},
    {Opcode::kCollectiveBroadcast, Same},
    {Opcode::kCollectivePermute, Same},
    {Opcode::kCollectivePermuteStart, CollectivePermuteStart},
    {Opcode::kCollectivePermuteDone, CollectivePermuteStart},
    {Opcode::kCollectiveReduce, Same},
    {Opcode::kPartitionId, Id},
    {Opcode::kRaggedAllToAll, RaggedAllToAll},
    {Opcode::kReduceScatter, Same},
    {Opcode::kReplicaId, Id},
};

}  // namespace

absl::Span<const Row> CollectiveRows() { return kRows; }

}  // namespace tenon::lab
