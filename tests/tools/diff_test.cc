// hlo-diff's matching and what it tells.
#include "tools/lab/diff/diff.h"

#include <gtest/gtest.h>

#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "hlo/builder.h"
#include "hlo/text/text.h"
#include "tools/lab/generate/transformer.h"

namespace tenon::lab {
namespace {

std::unique_ptr<Module> Parse(std::string_view text) {
  absl::StatusOr<std::unique_ptr<Module>> module = ParseModule(text);
  EXPECT_TRUE(module.ok()) << module.status() << "\n" << text;
  return module.ok() ? *std::move(module) : nullptr;
}

constexpr char kText[] = R"(HloModule m
  sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
  ENTRY e {
    x = f32[4,6] parameter(0), metadata={op_name="in"}
    y = f32[6] parameter(1)
    b = f32[4,6] broadcast(y), dimensions={1}
    m = f32[4,6] multiply(x, b)
    t = f32[6,4] transpose(m), dimensions={1,0}
    n = f32[6,4] negate(t)
    z = f32[] constant(0)
    ROOT r = f32[6] reduce(n, z), dimensions={1}, to_apply=sum
  })";

std::string With(std::string_view from, std::string_view to) {
  return absl::StrReplaceAll(kText, {{std::string(from), std::string(to)}});
}

// The only field that differs, as "what: a -> b".
std::string Only(const ModuleDiff& d) {
  std::vector<std::string> all;
  auto note = [&](const FieldChange& f) {
    all.push_back(absl::StrCat(f.what, ": ", f.a, " -> ", f.b));
  };
  for (const FieldChange& f : d.fields) note(f);
  for (const ComputationDiff& c : d.computations) {
    for (const FieldChange& f : c.fields) note(f);
    for (const InstructionChange& i : c.changes) {
      if (i.kind != InstructionChange::Kind::kChanged)
        all.push_back(i.a == nullptr ? "+" + i.b->name() : "-" + i.a->name());
      for (const FieldChange& f : i.fields) note(f);
    }
  }
  return all.size() == 1 ? all[0] : absl::StrCat(all.size(), " differences: ", d.ToText("a", "b"));
}

TEST(Diff, AModuleEqualsItself) {
  const auto a = Parse(kText), b = Parse(kText);
  const ModuleDiff d = Diff(*a, *b);
  EXPECT_TRUE(d.equal()) << d.ToText("a", "b");
  EXPECT_EQ(d.ToText("a", "b"), "");
  EXPECT_EQ(
      d.ToJson(),
      R"({"equal": true, "removed": 0, "added": 0, "changed": 0, "fields": [], "computations": []})");
}

TEST(Diff, OrderOfAdditionIsNoDifference) {
  const auto a = Parse(kText);
  const auto b = Parse(
      absl::StrReplaceAll(kText, {{"    z = f32[] constant(0)\n", ""},
                                  {"    b = f32", "    z = f32[] constant(0)\n    b = f32"}}));
  EXPECT_TRUE(Diff(*a, *b).equal()) << Diff(*a, *b).ToText("a", "b");
}

TEST(Diff, ARenamedInstructionIsARename) {
  const auto a = Parse(kText),
             b = Parse(absl::StrReplaceAll(
                 kText, {{"m = f32[4,6]", "product = f32[4,6]"}, {"(m)", "(product)"}}));
  EXPECT_EQ(Only(Diff(*a, *b)), "name: m -> product");
  DiffOptions no_names;
  ASSERT_TRUE(Ignore("names", &no_names));
  EXPECT_TRUE(Diff(*a, *b, no_names).equal());
}

TEST(Diff, EverythingRenamedIsEqualWithoutNames) {
  absl::StatusOr<Case> c = OptimizedTransformer();
  ASSERT_TRUE(c.ok()) << c.status();
  const auto b = Parse(Print(*c->module, {.canonical = true}));
  DiffOptions o;
  for (const char* what : {"names", "metadata", "layout"}) ASSERT_TRUE(Ignore(what, &o));
  const ModuleDiff d = Diff(*c->module, *b, o);
  EXPECT_EQ(absl::StrCat(d.removed(), " ", d.added(), " ", d.changed()), "0 0 0")
      << d.ToText("a", "b").substr(0, 2000);
}

TEST(Diff, OneFieldChanged) {
  const auto a = Parse(kText);
  EXPECT_EQ(Only(Diff(*a, *Parse(With("constant(0)", "constant(1)")))), "literal: 0 -> 1");
  EXPECT_EQ(Only(Diff(*a, *Parse(With("multiply(x, b)", "multiply(b, x)")))).substr(0, 13),
            "2 differences");
  EXPECT_EQ(Only(Diff(*a, *Parse(With("op_name=\"in\"", "op_name=\"out\"")))).substr(0, 9),
            "metadata:");
  EXPECT_EQ(Only(Diff(*a, *Parse(With("negate(t)", "abs(t)")))), "opcode: negate -> abs");
  EXPECT_EQ(Only(Diff(*a, *Parse(With("f32[4,6] parameter(0)", "f32[4,6]{0,1} parameter(0)")))),
            "layout: f32[4,6] -> f32[4,6]{0,1}");
  EXPECT_EQ(Only(Diff(*a, *Parse(With("add(a, b)", "maximum(a, b)")))), "opcode: add -> maximum");
  EXPECT_EQ(Only(Diff(*a, *Parse(With("HloModule m", "HloModule k")))), "module name: m -> k");
}

TEST(Diff, AnAttributeChangesWithoutItsNeighbours) {
  const char* text =
      "ENTRY e { x = f32[8] parameter(0) s = f32[4] slice(x), slice={[%s]} ROOT n = f32[4] "
      "negate(s) }";
  const auto a = Parse(absl::StrReplaceAll(text, {{"%s", "0:4"}})),
             b = Parse(absl::StrReplaceAll(text, {{"%s", "4:8"}}));
  EXPECT_EQ(Only(Diff(*a, *b)), "slice: {[0:4]} -> {[4:8]}");
}

TEST(Diff, AddedAndRemovedAreFoundWhereTheyAre) {
  const auto a = Parse(kText);
  const auto b = Parse(absl::StrReplaceAll(
      kText, {{"n = f32[6,4] negate(t)", "q = f32[6,4] tanh(t)\n    n = f32[6,4] negate(q)"}}));
  const ModuleDiff d = Diff(*a, *b), back = Diff(*b, *a);
  EXPECT_EQ(absl::StrCat(d.removed(), " ", d.added(), " ", d.changed()), "0 1 1")
      << d.ToText("a", "b");
  EXPECT_EQ(absl::StrCat(back.removed(), " ", back.added(), " ", back.changed()), "1 0 1")
      << back.ToText("a", "b");
  EXPECT_NE(d.ToText("a", "b").find("+ q = f32[6,4] tanh(t)\n"), std::string::npos)
      << d.ToText("a", "b");
  EXPECT_NE(d.ToText("a", "b").find("operand 0: t -> q"), std::string::npos) << d.ToText("a", "b");
}

TEST(Diff, AnAddedComputationIsShownWhole) {
  const auto a = Parse("ENTRY e { x = f32[] parameter(0) ROOT n = f32[] negate(x) }");
  const auto b = Parse(
      "f { y = f32[] parameter(0) ROOT t = f32[] tan(y) } ENTRY e { x = f32[] parameter(0) ROOT n "
      "= f32[] call(x), to_apply=f }");
  const ModuleDiff d = Diff(*a, *b);
  EXPECT_NE(d.ToText("a", "b").find("@@ computation f added @@"), std::string::npos)
      << d.ToText("a", "b");
  EXPECT_FALSE(d.equal());
}

TEST(Diff, OneChangeInTwelveEqualLayersIsOneChange) {
  auto layers = [](int changed, bool rename) {
    std::string text = "ENTRY e { x0 = f32[8] parameter(0) ";
    for (int l = 0; l < 12; ++l) {
      const std::string p = absl::StrCat(rename ? "other" : "v", l);
      absl::StrAppend(&text, p, "a = f32[8] multiply(x", l, ", x", l, ") ", p, "b = f32[8] ",
                      l == changed ? "sine" : "tanh", "(", p, "a) x", l + 1, " = f32[8] add(", p,
                      "b, x", l, ") ");
    }
    return absl::StrCat(text, "ROOT r = f32[8] negate(x12) }");
  };
  const auto a = Parse(layers(-1, false));
  EXPECT_EQ(Only(Diff(*a, *Parse(layers(5, false)))), "opcode: tanh -> sine");
  DiffOptions no_names;
  ASSERT_TRUE(Ignore("names", &no_names));
  const auto b = Parse(layers(5, true));
  const ModuleDiff d = Diff(*a, *b, no_names);
  EXPECT_LE(d.removed() + d.added() + d.changed(), 3) << d.ToText("a", "b");
}

TEST(Diff, FiveThousandInstructionsInASecond) {
  const auto a = TransformerStep({.layers = 22}), b = TransformerStep({.layers = 22});
  ASSERT_GT(a->instruction_count(), 5000);
  // A change near the beginning: everything after it hashes differently from below.
  int n = 0;
  for (Instruction* i : b->entry()->instructions()) {
    if (i->opcode() == Opcode::kConstant && i->shape().is_scalar() &&
        IsFloat(i->shape().element_type()) && ++n == 3) {
      i->set_literal(Literal::Scalar(PrimitiveType::kF32, 0.125));
    }
  }
  const auto start = std::chrono::steady_clock::now();
  const ModuleDiff d = Diff(*a, *b);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_EQ(Only(d).substr(0, 8), "literal:") << Only(d).substr(0, 2000);
  EXPECT_LT(seconds, 5) << "a second on an idle machine";
  std::printf("%lld instructions: %.3f s\n", static_cast<long long>(a->instruction_count()),
              seconds);
}

TEST(Diff, UnknownThingsCannotBeIgnored) {
  DiffOptions o;
  EXPECT_FALSE(Ignore("colour", &o));
  EXPECT_TRUE(Ignore("order", &o));
}

}  // namespace
}  // namespace tenon::lab
