// Composites: XLA's text of them, and what is read of it.
#include "hlo/composite.h"

#include "gtest/gtest.h"

#include "hlo/canonical_bytes.h"
#include "hlo/text/text.h"
#include "hlo/verifier.h"

namespace tenon {
namespace {

// As XLA prints one: blanks around the attributes' signs are MLIR's.
constexpr char kText[] = R"(HloModule m

twice {
  x = f32[2] parameter(0)
  ROOT y = f32[2] add(x, x)
}

ENTRY main {
  x.1 = f32[2] parameter(0)
  ROOT r = f32[2] call(x.1), to_apply=twice, is_composite=true, frontend_attributes={composite.attributes={n = 1 : i32, name = "a, b", t = dense<[1, 2]> : tensor<2xi32>, whole = true},composite.name="my.twice",composite.version="3",other="x"}
}
)";

std::unique_ptr<Module> Parsed(std::string_view text) {
  absl::StatusOr<std::unique_ptr<Module>> module = ParseModule(text);
  EXPECT_TRUE(module.ok()) << module.status();
  return module.ok() ? *std::move(module) : nullptr;
}

std::string BytesOf(const Module& module) {
  ByteStream out;
  AppendModule(module, &out);
  return out.bytes();
}

TEST(Composite, TheTextIsXlas) {
  const auto module = Parsed(kText);
  ASSERT_NE(module, nullptr);
  EXPECT_EQ(Print(*module), kText);
  EXPECT_TRUE(Verify(*module).ok());
  EXPECT_TRUE(module->entry()->root()->attrs().unknown.empty());
}

TEST(Composite, IsReadWithItsAttributes) {
  const auto module = Parsed(kText);
  ASSERT_NE(module, nullptr);
  const absl::StatusOr<Composite> composite = CompositeOf(*module->entry()->root());
  ASSERT_TRUE(composite.ok()) << composite.status();
  EXPECT_EQ(composite->name, "my.twice");
  EXPECT_EQ(composite->version, "3");
  using Attribute = std::pair<std::string, std::string>;
  EXPECT_EQ(composite->attributes, (std::vector<Attribute>{{"n", "1"}, {"name", "a, b"}, {"t", "dense<[1, 2]>"}, {"whole", "true"}}));
  EXPECT_EQ(*composite->Find("n"), "1");
  EXPECT_EQ(composite->Find("m"), nullptr);
}

TEST(Composite, WhatIsNoneSaysWhy) {
  const std::string text = kText;
  const size_t mark = text.find(", is_composite=true"), name = text.find("composite.name=");
  for (const std::string& broken : {std::string(text).erase(mark, 19), std::string(text).replace(name, 14, "composite.nick")}) {
    const auto module = Parsed(broken);
    ASSERT_NE(module, nullptr);
    EXPECT_FALSE(CompositeOf(*module->entry()->root()).ok()) << broken;
  }
}

TEST(Composite, MarkingAndUnmarking) {
  const auto module = Parsed(kText);
  ASSERT_NE(module, nullptr);
  Instruction* call = module->entry()->root();
  UnmarkComposite(call);
  EXPECT_FALSE(IsComposite(*call));
  EXPECT_EQ(call->attrs().get<std::string>(Attr::kFrontendAttributes), "{other=\"x\"}");
  MarkComposite(call, {.name = "my.half", .version = "1", .attributes = {{"scale", "0.5 : f64"}, {"is_causal", "true"}}});
  const std::string text = Print(*module);
  const auto again = Parsed(text);
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(Print(*again), text);
  std::string why;
  EXPECT_TRUE(StructurallyEqual(*module, *again, &why)) << why;
  const absl::StatusOr<Composite> composite = CompositeOf(*again->entry()->root());
  ASSERT_TRUE(composite.ok()) << composite.status();
  EXPECT_EQ(*composite->Find("scale"), "0.5");
}

// Two that differ in a composite's attributes alone are two.
TEST(Composite, AttributesArePartOfTheInstruction) {
  std::string other = kText;
  other.replace(other.find("n = 1"), 5, "n = 2");
  const auto a = Parsed(kText), b = Parsed(other);
  ASSERT_TRUE(a != nullptr && b != nullptr);
  EXPECT_FALSE(StructurallyEqual(*a, *b));
  EXPECT_NE(BytesOf(*a), BytesOf(*b));
}

}  // namespace
}  // namespace tenon
