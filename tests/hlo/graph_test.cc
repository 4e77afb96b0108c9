// Instructions, computations, modules: edges, removal, order, cloning, equality, and that none of it is quadratic.
#include <chrono>
#include <cstdio>
#include <functional>

#include "gtest/gtest.h"
#include "hlo/builder.h"
#include "hlo/module.h"

namespace tenon {
namespace {

const Shape kVector = Shape::Array(PrimitiveType::kF32, {4});

class GraphTest : public testing::Test {
 protected:
  Module module{"m"};
  Computation* c = module.AddComputation("main");
  Builder b{c};
  Instruction* p = b.Parameter(0, kVector, "p");
  Instruction* q = b.Parameter(1, kVector, "q");

  void SetUp() override { module.set_entry(c); }
};

std::vector<std::string> Names(absl::Span<Instruction* const> list) {
  std::vector<std::string> names;
  for (const Instruction* i : list) names.push_back(i->name());
  return names;
}
using Strings = std::vector<std::string>;

TEST_F(GraphTest, UsersHoldEachUserOnce) {
  Instruction* square = b.Binary(Opcode::kMultiply, p, p);
  Instruction* sum = b.Binary(Opcode::kAdd, p, square);
  EXPECT_EQ(Names(p->users()), Names({square, sum}));
  square->ReplaceOperand(0, q);
  EXPECT_EQ(p->user_count(), 2);  // still used by the other operand
  square->ReplaceOperand(1, q);
  EXPECT_EQ(Names(p->users()), Names({sum}));
  EXPECT_EQ(Names(q->users()), Names({square}));
}

TEST_F(GraphTest, AppendAndRemoveOperands) {
  Instruction* t = b.Tuple({p, q});
  t->AppendOperand(p);
  EXPECT_EQ(p->user_count(), 1);
  t->RemoveOperand(0);
  EXPECT_EQ(p->user_count(), 1);
  t->RemoveOperand(1);
  EXPECT_EQ(p->user_count(), 0);
  EXPECT_EQ(Names(t->operands()), Names({q}));
}

TEST_F(GraphTest, ReplaceAllUsesMovesTheRootAndSparesTheReplacement) {
  Instruction* n = b.Unary(Opcode::kNegate, p);
  Instruction* e = b.Unary(Opcode::kExponential, n);
  c->set_root(n);
  Instruction* wrapped = b.Unary(Opcode::kAbs, n);
  n->ReplaceAllUsesWith(wrapped);
  EXPECT_EQ(c->root(), wrapped);
  EXPECT_EQ(wrapped->operand(0), n);
  EXPECT_EQ(e->operand(0), wrapped);
  EXPECT_EQ(Names(n->users()), Names({wrapped}));
}

TEST_F(GraphTest, ReplaceAndRemoveTakesWhatDies) {
  Instruction* n = b.Unary(Opcode::kNegate, p);
  Instruction* shared = b.Unary(Opcode::kAbs, q);
  Instruction* sum = b.Binary(Opcode::kAdd, n, shared);
  Instruction* keep = b.Unary(Opcode::kExponential, shared);
  c->set_root(b.Binary(Opcode::kMultiply, sum, keep));
  c->ReplaceAndRemove(sum, keep);
  EXPECT_EQ(Names(c->instructions()), (Strings{"p", "q", "abs", "exponential", "multiply"}));
  EXPECT_EQ(p->user_count(), 0);
  c->ReplaceAndRemove(c->root(), q);
  EXPECT_EQ(Names(c->instructions()), (Strings{"p", "q"}));
}

TEST_F(GraphTest, RemovalKeepsOrderAcrossControlEdges) {
  Instruction* x = b.Unary(Opcode::kNegate, p);
  Instruction* y = b.Unary(Opcode::kAbs, p);
  Instruction* z = b.Unary(Opcode::kExponential, q);
  y->AddControlPredecessor(x);
  z->AddControlPredecessor(y);
  c->set_root(z);
  c->Remove(y);
  EXPECT_EQ(Names(z->control_predecessors()), Names({x}));
  EXPECT_EQ(Names(x->control_successors()), Names({z}));
}

TEST_F(GraphTest, RefusesWhatBreaksTheGraph) {
  Instruction* n = b.Unary(Opcode::kNegate, p);
  c->set_root(n);
  EXPECT_THROW(c->Remove(n), InternalError);
  EXPECT_THROW(c->Remove(p), InternalError);
  EXPECT_THROW(c->RemoveParameter(0), InternalError);
  EXPECT_THROW(c->AddParameter(0, kVector), InternalError);
  Computation* other = module.AddComputation("other");
  EXPECT_THROW(other->set_root(n), InternalError);
  EXPECT_THROW(other->Add(Opcode::kAbs, kVector, {p}), InternalError);
  EXPECT_THROW(b.Binary(Opcode::kAdd, p, b.ScalarConstant(PrimitiveType::kF32, 1)), InternalError);
}

TEST_F(GraphTest, RemoveParameterRenumbers) {
  Instruction* r = b.Parameter(2, kVector, "r");
  c->set_root(b.Binary(Opcode::kAdd, p, r));
  c->RemoveParameter(1);
  EXPECT_EQ(Names(c->parameters()), (Strings{"p", "r"}));
  EXPECT_EQ(r->parameter_number(), 1);
}

TEST_F(GraphTest, PostOrderPutsOperandsFirst) {
  Instruction* root = b.Unary(Opcode::kNegate, p);
  c->set_root(root);
  Instruction* late = b.Unary(Opcode::kAbs, p);  // made after, used before
  root->ReplaceOperand(0, late);
  EXPECT_EQ(Names(c->PostOrder()), (Strings{"p", "q", "abs", "negate"}));
  EXPECT_EQ(Names(c->instructions()), (Strings{"p", "q", "negate", "abs"}));
  EXPECT_THROW(c->set_schedule(c->instructions()), InternalError);
  c->set_schedule(c->PostOrder());
  EXPECT_EQ(Names(c->instructions()), (Strings{"p", "q", "abs", "negate"}));
}

TEST_F(GraphTest, NamesAreUnique) {
  EXPECT_EQ(b.Unary(Opcode::kAbs, p)->name(), "abs");
  EXPECT_EQ(b.Unary(Opcode::kAbs, p)->name(), "abs.1");
  EXPECT_EQ(c->Add(Opcode::kAbs, kVector, {p}, "abs.1")->name(), "abs.2");
  EXPECT_EQ(module.AddComputation("main")->name(), "main.1");
}

TEST_F(GraphTest, IdenticalLooksAtEverythingButNames) {
  Instruction* s1 = b.Slice(p, {0}, {2}, {1});
  Instruction* s2 = b.Slice(p, {0}, {2}, {1});
  Instruction* s3 = b.Slice(p, {1}, {3}, {1});
  EXPECT_TRUE(Instruction::Identical(*s1, *s2));
  EXPECT_FALSE(Instruction::Identical(*s1, *s3));
  Instruction* c1 = b.ScalarConstant(PrimitiveType::kF32, 1);
  EXPECT_TRUE(Instruction::Identical(*c1, *b.ScalarConstant(PrimitiveType::kF32, 1)));
  EXPECT_FALSE(Instruction::Identical(*c1, *b.ScalarConstant(PrimitiveType::kF32, 2)));
}

TEST_F(GraphTest, SideEffectsReachCallers) {
  Computation* body = module.AddComputation("body");
  Builder bb(body);
  Instruction* x = bb.Parameter(0, kVector);
  body->set_root(bb.CustomCall("print", kVector, {x}, "", /*side_effect=*/true));
  Attributes attrs;
  attrs.set(Attr::kToApply, body);
  Instruction* call = b.Make(Opcode::kCall, {p}, std::move(attrs));
  EXPECT_TRUE(call->HasSideEffect());
  EXPECT_FALSE(b.CustomCall("pure", kVector, {p})->HasSideEffect());
  EXPECT_FALSE(b.Unary(Opcode::kAbs, p)->HasSideEffect());
}

TEST_F(GraphTest, BuilderBroadcastsLikeNumPy) {
  Instruction* row = b.Parameter(2, Shape::Array(PrimitiveType::kF32, {1, 4}));
  Instruction* wide = b.BroadcastTo(row, {3, 2, 4});
  EXPECT_EQ(wide->shape().ToString(), "f32[3,2,4]");
  EXPECT_EQ(wide->dimensions(), (std::vector<int64_t>{2}));
  EXPECT_EQ(b.BroadcastTo(p, {4}), p);
  EXPECT_EQ(b.Transpose(wide, {0, 1, 2}), wide);
  EXPECT_EQ(b.Reshape(wide, {3, 2, 4}), wide);
  EXPECT_EQ(b.Convert(p, PrimitiveType::kF32), p);
  EXPECT_EQ(b.FullLike(wide, 2)->shape().ToString(), "f32[3,2,4]");
  EXPECT_THROW(b.BroadcastTo(p, {5}), InternalError);
}

TEST_F(GraphTest, ScalarComputationsAreShared) {
  Computation* add = b.ScalarComputation(Opcode::kAdd, PrimitiveType::kF32);
  EXPECT_EQ(add, b.ScalarComputation(Opcode::kAdd, PrimitiveType::kF32));
  EXPECT_NE(add, b.ScalarComputation(Opcode::kAdd, PrimitiveType::kBF16));
  c->set_root(b.Reduce(p, b.ScalarConstant(PrimitiveType::kF32, 0), {0}, Opcode::kAdd));
  EXPECT_EQ(module.RemoveUnreachableComputations(), 1);  // the bf16 one
  EXPECT_NE(b.ScalarComputation(Opcode::kAdd, PrimitiveType::kBF16), nullptr);
}

TEST_F(GraphTest, CloneIsEqualAndSeparate) {
  Instruction* sum = b.Reduce(p, b.ScalarConstant(PrimitiveType::kF32, 0), {0}, Opcode::kAdd);
  Metadata meta;
  meta.op_name = "aten.sum";
  sum->metadata() = meta;
  c->set_root(sum);
  module.attributes.push_back({"replica_count", "1"});
  std::unique_ptr<Module> clone = module.Clone();
  std::string why;
  EXPECT_TRUE(StructurallyEqual(module, *clone, &why)) << why;
  EXPECT_EQ(clone->entry()->root()->metadata().op_name, "aten.sum");
  EXPECT_NE(clone->entry()->root()->to_apply(), sum->to_apply());
  EXPECT_EQ(Names(clone->entry()->instructions()), Names(c->instructions()));
  clone->entry()->root()->mutable_attrs().set(Attr::kDimensions, std::vector<int64_t>{});
  EXPECT_FALSE(StructurallyEqual(module, *clone, &why));
  EXPECT_NE(why.find("dimensions"), std::string::npos) << why;
}

TEST(StructuralEquality, NamesAndTablesDoNotCountStructureDoes) {
  auto make = [](std::string name, bool swap, double constant) {
    auto m = std::make_unique<Module>(name);
    Computation* c = m->AddComputation(name);
    m->set_entry(c);
    Builder b(c);
    Shape shape(PrimitiveType::kF32, {m->dims().Symbol("s0"), 2});
    Instruction* x = b.Parameter(0, shape, name + "x");
    Instruction* y = b.Parameter(1, shape, name + "y");
    Instruction* d = b.Binary(Opcode::kSubtract, swap ? y : x, swap ? x : y);
    c->set_root(b.Binary(Opcode::kMultiply, d, b.FullLike(d, constant)));
    return m;
  };
  std::string why;
  EXPECT_TRUE(StructurallyEqual(*make("a", false, 2), *make("b", false, 2), &why)) << why;
  EXPECT_FALSE(StructurallyEqual(*make("a", false, 2), *make("b", true, 2), &why));
  EXPECT_FALSE(StructurallyEqual(*make("a", false, 2), *make("b", false, 3), &why));
}

double Milliseconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

// Runs at a size at which a quadratic step would be felt, and prints how time grows; the time is no pass or fail.
template <typename F>
void AtScale(F&& work) {
  const double small = Milliseconds([&] { work(5000); }), large = Milliseconds([&] { work(20000); });
  std::printf("5,000: %.2f ms   20,000: %.2f ms   ratio %.1f\n", small, large, large / small);
}

TEST(Scale, BuildingAndCloning) {
  AtScale([](int n) {
    Module m;
    Computation* c = m.AddComputation("main");
    m.set_entry(c);
    Instruction* x = c->AddParameter(0, kVector);
    Instruction* y = x;
    for (int i = 0; i < n; ++i) y = c->Add(Opcode::kAdd, kVector, {y, x});  // x has n users
    c->set_root(y);
    EXPECT_TRUE(StructurallyEqual(m, *m.Clone()));
    EXPECT_EQ(c->PostOrder().size(), static_cast<size_t>(n + 1));
  });
}

TEST(Scale, ManyUsersAreReplacedAndRemoved) {
  AtScale([](int n) {
    Module m;
    Computation* c = m.AddComputation("main");
    Instruction* x = c->AddParameter(0, kVector);
    Instruction* y = c->AddParameter(1, kVector);
    std::vector<Instruction*> users;
    for (int i = 0; i < n; ++i) users.push_back(c->Add(Opcode::kAbs, kVector, {x}));
    Instruction* all = c->Add(Opcode::kTuple, Shape::Tuple(std::vector<Shape>(n, kVector)), users);
    c->set_root(all);
    x->ReplaceAllUsesWith(y);
    EXPECT_EQ(y->user_count(), n);
    c->set_root(y);
    c->Remove(all);
    for (Instruction* u : users) c->Remove(u);
    EXPECT_EQ(y->user_count(), 0);
  });
}

}  // namespace
}  // namespace tenon
