// Control flow, calls, tuples, tokens and asynchronous wrappers. Bodies are scopes of their own, grown from the same menu.
#include <algorithm>

#include "hlo/own_calls.h"
#include "tools/lab/generate/generator.h"

namespace tenon::lab {
namespace {

bool MayNest(Scope& s) { return s.depth() < s.g().options.max_depth && s.g().budget > 0; }

// Rows for a body, taken from the module's budget.
int64_t BodyRows(Scope& s, int64_t most) {
  const int64_t rows = std::min(s.g().budget, s.random().Between(1, most));
  s.g().budget -= rows;
  return std::max<int64_t>(1, rows);
}

std::vector<Value> Operands(Scope& s, int64_t most) {
  std::vector<Value> operands;
  for (int64_t n = s.random().Between(1, most); n > 0; --n) operands.push_back(s.Exact());
  return operands;
}

std::vector<Instruction*> Ops(const std::vector<Value>& values) {
  std::vector<Instruction*> ops;
  for (const Value& v : values) ops.push_back(v.op);
  return ops;
}

// A computation with a parameter per operand and what grows from them; root: one or a few of its values.
Computation* Body(Scope& s, const std::vector<Value>& operands, std::string name, int64_t rows) {
  Computation* c = s.module()->AddComputation(std::move(name));
  Scope body(s.g(), c, s.depth() + 1);
  for (size_t k = 0; k < operands.size(); ++k) {
    body.Add(body.b().Parameter(static_cast<int64_t>(k), operands[k].op->shape()));
  }
  body.Grow(rows);
  std::vector<Instruction*> results;
  for (int64_t n = s.random().OneIn(2) ? 1 : s.random().Between(2, 3); n > 0; --n) results.push_back(body.Exact().op);
  c->set_root(results.size() == 1 ? results[0] : body.b().Tuple(results));
  return c;
}

// Registers the arrays of a result.
bool AddLeaves(Scope& s, Instruction* y) {
  if (y == nullptr) return false;
  if (y->shape().is_array()) s.Add(y);
  if (!y->shape().is_tuple()) return true;
  for (int64_t k = 0; k < static_cast<int64_t>(y->shape().elements().size()); ++k) AddLeaves(s, Part(s, y, k));
  return true;
}

bool Call(Scope& s, Opcode opcode) {
  if (!MayNest(s)) return false;
  const std::vector<Value> operands = Operands(s, 3);
  const int64_t rows = BodyRows(s, 5);
  Computation* body = Body(s, operands, "callee", rows);
  if (s.random().OneIn(3)) AddLeaves(s, s.Try(opcode, Ops(operands), With(Attr::kToApply, body)));  // called twice
  return AddLeaves(s, s.Try(opcode, Ops(operands), With(Attr::kToApply, body)));
}

bool Fusion(Scope& s, Opcode opcode) {
  if (!MayNest(s)) return false;
  const std::vector<Value> operands = Operands(s, 3);
  const int64_t rows = BodyRows(s, 5);
  // Fusions hold elementwise and movement ops.
  std::vector<Row> all = s.g().menu, menu;
  for (const Row& row : all) {
    const Family family = InfoOf(row.opcode).family;
    if (family == Family::kElementwise || family == Family::kMovement) menu.push_back(row);
  }
  if (menu.empty()) menu.assign(MovementRows().begin(), MovementRows().end());
  s.g().menu.swap(menu);
  Computation* body = Body(s, operands, "fused", rows);
  s.g().menu.swap(menu);
  Attributes attrs = With(Attr::kCalls, body);
  attrs.set(Attr::kFusionKind, std::string("kLoop"));
  return AddLeaves(s, s.Try(opcode, Ops(operands), attrs));
}

bool Async(Scope& s, Opcode opcode) {
  if (!MayNest(s)) return false;
  const std::vector<Value> operands = Operands(s, 2);
  const int64_t rows = BodyRows(s, 3);
  Computation* body = Body(s, operands, "async", rows);
  Instruction* y = s.Try(Opcode::kAsyncStart, Ops(operands), With(Attr::kCalls, body));
  if (y == nullptr) return false;
  for (int64_t n = opcode == Opcode::kAsyncUpdate ? s.random().Between(1, 2) : s.random().Below(2); n > 0; --n) {
    y = s.b().Make(Opcode::kAsyncUpdate, {y}, {});
  }
  return AddLeaves(s, s.b().Make(Opcode::kAsyncDone, {y}, {}));
}

bool Conditional(Scope& s, Opcode opcode) {
  if (!MayNest(s)) return false;
  Random& random = s.random();
  const bool by_pred = random.OneIn(2);
  const int64_t branches = by_pred ? 2 : random.Between(1, 4);
  std::vector<Instruction*> operands = {s.Scalar(by_pred ? PrimitiveType::kPred : PrimitiveType::kS32).op};
  std::vector<Value> results;  // what every branch returns, by shape
  for (int64_t n = random.Between(1, 3); n > 0; --n) results.push_back(s.Exact());
  std::vector<Computation*> bodies;
  for (int64_t k = 0; k < branches; ++k) {
    const std::vector<Value> arguments = Operands(s, 3);
    const bool tuple = arguments.size() > 1 || random.OneIn(4);
    operands.push_back(tuple ? s.b().Tuple(Ops(arguments)) : arguments[0].op);
    Computation* c = s.module()->AddComputation("branch");
    Scope body(s.g(), c, s.depth() + 1);
    Instruction* p = body.b().Parameter(0, operands.back()->shape());
    AddLeaves(body, p);
    body.Grow(BodyRows(s, 4));
    std::vector<Instruction*> leaves;
    for (const Value& r : results) leaves.push_back(body.Shaped(r.type(), r.dims()).op);
    c->set_root(leaves.size() == 1 ? leaves[0] : body.b().Tuple(leaves));
    bodies.push_back(c);
  }
  Attributes attrs;
  if (by_pred && random.OneIn(2)) {
    attrs.set(Attr::kTrueComputation, bodies[0]);
    attrs.set(Attr::kFalseComputation, bodies[1]);
  } else {
    attrs.set(Attr::kBranchComputations, bodies);
  }
  return AddLeaves(s, s.Try(opcode, operands, attrs));
}

// A new value for element k of a loop's state.
Instruction* NextState(Scope& body, const std::vector<Value>& state, size_t k) {
  Random& random = body.random();
  const Value& old = state[k];
  switch (random.Below(5)) {
    case 0:
      return old.op;
    case 1:  // another element of the shape: they swap, or are moved on
      for (size_t j = 0; j < state.size(); ++j) {
        if (j != k && state[j].type() == old.type() && state[j].dims() == old.dims()) return state[j].op;
      }
      break;
    case 2:
      if (old.rank() > 0) {  // written in place, while others may still read the old state
        std::vector<Dim> sizes = old.dims();
        for (Dim& d : sizes) d = random.Between(std::min<int64_t>(1, Scope::Least(d)), Scope::Least(d));
        std::vector<Instruction*> operands = {old.op, body.Shaped(old.type(), sizes).op};
        for (int64_t d = 0; d < old.rank(); ++d) operands.push_back(body.Scalar(PrimitiveType::kS32).op);
        if (Instruction* y = body.Try(Opcode::kDynamicUpdateSlice, operands)) return body.Add(y).op;
      }
      break;
    default:
      break;
  }
  return body.Shaped(old.type(), old.dims()).op;
}

bool While(Scope& s, Opcode opcode) {
  Random& random = s.random();
  if (!MayNest(s)) return false;
  if (s.g().runs * 4 > kMaxRuns) return false;
  constexpr PrimitiveType kCounters[] = {PrimitiveType::kS32, PrimitiveType::kS32, PrimitiveType::kS64, PrimitiveType::kU8};
  const PrimitiveType type = random.Pick(kCounters);
  const int64_t trips = random.OneIn(8) ? 0 : random.Between(1, 4);
  Builder& b = s.b();
  Instruction* start = b.ScalarConstantInt(type, 0);
  if (random.OneIn(3)) start = b.Clamp(start, s.Scalar(type).op, b.ScalarConstantInt(type, trips + 1));
  std::vector<Value> elements = {Value{start}};
  for (int64_t n = random.Between(1, 4); n > 0; --n) elements.push_back(s.Exact());
  if (random.OneIn(3)) elements.push_back(elements.back());  // two elements that begin as one array
  Instruction* state = b.Tuple(Ops(elements));

  Computation* condition = s.module()->AddComputation("condition");
  Builder cb(condition);
  Instruction* cp = cb.Parameter(0, state->shape());
  Instruction* go_on = cb.Compare(cb.GetTupleElement(cp, 0), cb.ScalarConstantInt(type, trips), "LT");
  for (size_t k = 1; k < elements.size(); ++k) {
    if (elements[k].type() != PrimitiveType::kPred || elements[k].rank() != 0 || random.OneIn(2)) continue;
    go_on = cb.Binary(Opcode::kAnd, go_on, cb.GetTupleElement(cp, static_cast<int64_t>(k)));
  }
  condition->set_root(go_on);

  const Repeated repeated(s, std::max<int64_t>(1, trips));
  Computation* c = s.module()->AddComputation("body");
  Scope body(s.g(), c, s.depth() + 1);
  Instruction* p = body.b().Parameter(0, state->shape());
  std::vector<Value> parts;
  for (size_t k = 0; k < elements.size(); ++k) parts.push_back(body.Add(Part(body, p, static_cast<int64_t>(k))));
  body.Grow(BodyRows(s, 5));
  std::vector<Instruction*> next = {body.b().Binary(Opcode::kAdd, parts[0].op, body.b().ScalarConstantInt(type, 1))};
  for (size_t k = 1; k < parts.size(); ++k) next.push_back(NextState(body, parts, k));
  c->set_root(body.b().Tuple(next));

  Attributes attrs = With(Attr::kCondition, condition);
  attrs.set(Attr::kBody, c);
  return AddLeaves(s, s.Try(opcode, {state}, attrs));
}

bool OptBarrier(Scope& s, Opcode opcode) {
  const Value x = s.Any();
  if (s.random().OneIn(2)) return s.Moved(s.b().Make(opcode, {x.op}, {}), x), true;
  const Value y = s.Any();
  Instruction* both = s.b().Make(opcode, {s.b().Tuple({x.op, y.op})}, {});
  s.Moved(Part(s, both, 0), x);
  s.Moved(Part(s, both, 1), y);
  return true;
}

bool Tuple(Scope& s, Opcode) {
  const Value x = s.Any();
  const Value y = s.Any();
  Instruction* inner = s.b().Tuple({y.op, x.op});
  if (s.random().OneIn(2)) {
    s.Moved(Part(s, Part(s, s.b().Tuple({x.op, inner}), 1), 0), y);
  } else {
    s.Moved(Part(s, inner, 1), x);
  }
  return true;
}

bool Parameter(Scope& s, Opcode) {
  const int64_t count = static_cast<int64_t>(s.b().computation()->parameters().size());
  if (!s.is_entry() || count >= 8) return false;
  const PrimitiveType type = s.Type();
  s.Add(s.b().Parameter(count, Shape(type, s.Dims())), true, kNotSmall, true);
  return true;
}

bool Domain(Scope& s, Opcode opcode) {
  const Value x = s.Any();
  const std::string domain = "{kind=\"sharding\", entry={maximal device=0}, exit={maximal device=0}}";
  return s.Moved(s.b().Make(opcode, {x.op}, With(Attr::kDomain, domain)), x), true;
}

// A value that waits for tokens.
bool Dependency(Scope& s, Opcode) {
  const Value x = s.Any();
  Instruction* token = s.b().Make(Opcode::kAfterAll, {}, {});
  if (s.random().OneIn(2)) token = s.b().Make(Opcode::kAfterAll, {token, s.b().Make(Opcode::kAfterAll, {}, {})}, {});
  return s.Moved(s.b().Make(Opcode::kAddDependency, {x.op, token}, {}), x), true;
}

bool CopyStart(Scope& s, Opcode) {
  const Value x = s.Any();
  Instruction* start = s.b().Make(Opcode::kCopyStart, {x.op}, {});
  return s.Moved(s.b().Make(Opcode::kCopyDone, {start}, {}), x), true;
}

// tenon's own pointwise call.
bool Fma(Scope& s) {
  const Value a = s.OfType([](PrimitiveType t) { return t == PrimitiveType::kF32 || t == PrimitiveType::kF64; });
  const Value b = s.Shaped(a.type(), a.dims()), c = s.Shaped(a.type(), a.dims());
  Instruction* y = s.Try(Opcode::kCustomCall, {a.op, b.op, c.op}, With(Attr::kCustomCallTarget, std::string(kFmaTarget)));
  return y != nullptr && (s.Add(y), true);
}

// That, and the targets that do nothing on one device.
bool CustomCall(Scope& s, Opcode) {
  if (s.random().OneIn(2)) return Fma(s);
  constexpr std::string_view kTargets[] = {"Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "LayoutConstraint",
                                           "MoveToHost", "MoveToDevice", "annotate_device_placement"};
  const Value x = s.Any();
  const std::string_view target = s.random().Pick(kTargets);
  return s.Moved(s.b().CustomCall(target, Shape(x.type(), x.dims()), {x.op}), x), true;
}

constexpr Row kRows[] = {
    {Opcode::kCall, Call},
    {Opcode::kConditional, Conditional},
    {Opcode::kCustomCall, CustomCall},
    {Opcode::kDomain, Domain},
    {Opcode::kFusion, Fusion},
    {Opcode::kGetTupleElement, Tuple},
    {Opcode::kOptBarrier, OptBarrier},
    {Opcode::kParameter, Parameter},
    {Opcode::kTuple, Tuple},
    {Opcode::kWhile, While},
    {Opcode::kAddDependency, Dependency},
    {Opcode::kAfterAll, Dependency},
    {Opcode::kCopyStart, CopyStart},
    {Opcode::kCopyDone, CopyStart},
    {Opcode::kAsyncStart, Async},
    {Opcode::kAsyncUpdate, Async},
    {Opcode::kAsyncDone, Async},
};

}  // namespace

absl::Span<const Row> ControlRows() { return kRows; }

}  // namespace tenon::lab
