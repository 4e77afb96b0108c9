// The verifier refuses IR that breaks each invariant listed at the top of verifier.cc, naming its label. The list is read from
// there, so an invariant without a breaking test fails.
#include "hlo/verifier.h"

#include <functional>
#include <map>

#include "gtest/gtest.h"
#include "hlo/builder.h"
#include "hlo/text/text.h"
#include "tests/hlo/text_files.h"

namespace tenon {
namespace {

constexpr std::string_view kModule = R"(HloModule m
callee { p = f32[2] parameter(0) ROOT n = f32[2] negate(p) }
other { p2 = f32[2] parameter(0) ROOT n2 = f32[2] call(p2), to_apply=callee }
async { pa = f32[2] parameter(0) ROOT na = f32[2] negate(pa) }
ENTRY main {
  x = f32[2] parameter(0)
  y = f32[2] parameter(1)
  a = f32[2] add(x, y)
  b = f32[2] multiply(a, x)
  c = f32[2] call(b), to_apply=other
  k = f32[2] constant({1, 2})
  s = ((f32[2]), f32[2]) async-start(k), calls=async
  d = f32[2] async-done(s)
  ROOT r = (f32[2], f32[2]) tuple(c, d), control-predecessors={a}
})";

Instruction* Find(const Module& m, std::string_view name) {
  for (Computation* c : m.computations()) {
    for (Instruction* i : c->instructions()) {
      if (i->name() == name) return i;
    }
  }
  ADD_FAILURE() << name;
  return nullptr;
}

Computation* FindComputation(const Module& m, std::string_view name) {
  for (Computation* c : m.computations()) {
    if (c->name() == name) return c;
  }
  ADD_FAILURE() << name;
  return nullptr;
}

// Overwrites an entry of an edge list behind its owner's back.
void Overwrite(absl::Span<Instruction* const> list, size_t i, Instruction* with) {
  const_cast<Instruction*&>(list[i]) = with;
}

struct Breakage {
  std::string label;
  std::function<void(Module&)> breaks;
  VerifyOptions options = {};
};

std::vector<Breakage> Breakages() {
  static Module foreign;
  return {
      {"verify_entry", [](Module& m) { m.set_entry(nullptr); }},
      {"verify_entry", [](Module& m) { m.set_entry(foreign.AddComputation("f")); }},
      {"verify_root", [](Module& m) { m.AddComputation("empty"); }},
      {"verify_parameters", [](Module& m) { Find(m, "y")->set_parameter_number(2); }},
      {"verify_parameters", [](Module& m) { Find(m, "y")->set_parameter_number(0); }},
      {"verify_operands", [](Module& m) { Find(m, "b")->ReplaceOperand(1, Find(m, "p")); }},
      {"verify_operands", [](Module& m) { Find(m, "b")->AddControlPredecessor(Find(m, "p")); }},
      {"verify_users", [](Module& m) { Overwrite(Find(m, "a")->users(), 0, Find(m, "c")); }},
      {"verify_users", [](Module& m) { Overwrite(Find(m, "b")->operands(), 0, Find(m, "y")); }},
      {"verify_control", [](Module& m) { Overwrite(Find(m, "a")->control_successors(), 0, Find(m, "b")); }},
      {"verify_control", [](Module& m) { Overwrite(Find(m, "r")->control_predecessors(), 0, Find(m, "b")); }},
      {"verify_acyclic", [](Module& m) { Find(m, "a")->ReplaceOperand(1, Find(m, "b")); }},
      {"verify_acyclic", [](Module& m) { Find(m, "a")->AddControlPredecessor(Find(m, "b")); }},
      {"verify_callees", [](Module& m) {
         Computation* c = foreign.AddComputation("g");
         c->set_root(c->AddParameter(0, Shape::Array(PrimitiveType::kF32, {2})));
         Find(m, "c")->mutable_attrs().set(Attr::kToApply, c);
       }},
      {"verify_callees", [](Module& m) {
         Computation* callee = FindComputation(m, "callee");
         Instruction* again = callee->Add(Opcode::kCall, Shape::Array(PrimitiveType::kF32, {2}), {callee->parameter(0)});
         again->mutable_attrs().set(Attr::kToApply, FindComputation(m, "other"));
       }},
      {"verify_entry_called", [](Module& m) { Find(m, "c")->mutable_attrs().set(Attr::kToApply, m.entry()); }},
      {"verify_names", [](Module& m) { Find(m, "b")->set_name("a"); }},
      {"verify_names", [](Module& m) { FindComputation(m, "other")->set_name("main"); }},
      {"verify_literal", [](Module& m) { Find(m, "k")->set_literal(Literal::Scalar(PrimitiveType::kF32, 1)); }},
      {"verify_literal", [](Module& m) { Find(m, "a")->set_literal(Literal::Scalar(PrimitiveType::kF32, 1)); }},
      {"verify_literal", [](Module& m) { m.entry()->Add(Opcode::kConstant, Shape::Scalar(PrimitiveType::kF32), {}); }},
      {"verify_attributes", [](Module& m) { Find(m, "a")->mutable_attrs().set(Attr::kIotaDimension, int64_t{0}); }},
      {"verify_attributes", [](Module& m) { Find(m, "c")->mutable_attrs().set(Attr::kToApply, std::string("callee")); }},
      {"verify_shape", [](Module& m) { Find(m, "a")->mutable_shape().set_dim(0, 3); }},
      {"verify_shape", [](Module& m) { Find(m, "a")->AppendOperand(Find(m, "x")); }},
      {"verify_layout", [](Module& m) {}, {.layouts = true}},
      {"verify_schedule",
       [](Module& m) {
         Instruction* late = m.entry()->Add(Opcode::kNegate, Shape::Array(PrimitiveType::kF32, {2}), {Find(m, "x")});
         Find(m, "b")->ReplaceOperand(1, late);
       },
       {.scheduled = true}},
      {"verify_alias", [](Module& m) { m.aliases.push_back({{0}, 2, {}}); }},
      {"verify_alias", [](Module& m) { m.aliases.push_back({{2}, 0, {}}); }},
      {"verify_alias", [](Module& m) { m.aliases.push_back({{}, 0, {}}); }},
      {"verify_entry_layout", [](Module& m) { m.entry_layout.emplace(std::vector<Shape>{}, Shape()); }},
      {"verify_async", [](Module& m) {
         Find(m, "d")->ReplaceOperand(
             0, m.entry()->AddParameter(2, Find(m, "s")->shape()));
       }},
      {"verify_async", [](Module& m) {
         Instruction* again = m.entry()->Add(Opcode::kAsyncStart, Find(m, "s")->shape(), {Find(m, "k")});
         again->mutable_attrs().set(Attr::kCalls, FindComputation(m, "async"));
       }},
  };
}

TEST(Verifier, AcceptsTheModule) {
  const auto m = ParseModule(kModule);
  ASSERT_TRUE(m.ok()) << m.status();
  EXPECT_TRUE(Verify(**m).ok()) << Verify(**m);
  EXPECT_TRUE(Verify(**m, {.scheduled = true}).ok());
}

TEST(Verifier, RefusesEachBreakageByItsLabel) {
  int n = 0;
  for (const Breakage& b : Breakages()) {
    SCOPED_TRACE(b.label + " #" + std::to_string(n++));
    auto m = ParseModule(kModule);
    ASSERT_TRUE(m.ok()) << m.status();
    b.breaks(**m);
    const absl::Status status = Verify(**m, b.options);
    ASSERT_FALSE(status.ok());
    EXPECT_TRUE(std::string(status.message()).starts_with(b.label + ": ")) << status;
    EXPECT_NE(std::string(status.message()).find("wanted "), std::string::npos) << status;
  }
}

TEST(Verifier, EveryListedInvariantIsBrokenAbove) {
  const std::string source = ReadTestFile(std::string(TENON_SOURCE_DIR) + "/hlo/verifier.cc");
  const std::string head = source.substr(0, source.find("#include"));
  std::map<std::string, int> listed;
  for (size_t at = head.find("//   verify_"); at != std::string::npos; at = head.find("//   verify_", at + 1)) {
    listed[head.substr(at + 5, head.find(' ', at + 5) - at - 5)] = 0;
  }
  EXPECT_GE(listed.size(), 15u);
  for (const Breakage& b : Breakages()) {
    ASSERT_TRUE(listed.contains(b.label)) << b.label << " isn't listed";
    ++listed[b.label];
  }
  for (const auto& [label, broken] : listed) EXPECT_GT(broken, 0) << label;
}

}  // namespace
}  // namespace tenon
