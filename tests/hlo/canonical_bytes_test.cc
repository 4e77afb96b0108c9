// The bytes that keys are made of: equal for what means the same, different for all else. The canonical text is the judge.
#include "hlo/canonical_bytes.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hlo/text/text.h"

namespace tenon {
namespace {

std::unique_ptr<Module> Parse(const std::string& text) {
  auto module = ParseModule(text);
  EXPECT_TRUE(module.ok()) << module.status() << "\n" << text;
  return module.ok() ? *std::move(module) : nullptr;
}

std::string BytesOf(const Module& module) {
  ByteStream out;
  AppendModule(module, &out);
  return out.bytes();
}

constexpr char kBase[] = R"hlo(HloModule m

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

ENTRY e {
  x = f32[4,8]{1,0} parameter(0)
  w = f32[8,4]{1,0} parameter(1)
  c = f32[] constant(2)
  wide = f32[4,8]{1,0} broadcast(c), dimensions={}
  y = f32[4,8]{1,0} multiply(x, wide)
  d = f32[4,4]{1,0} dot(y, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[4,4]{0,1} transpose(d), dimensions={1,0}
  p = f32[6,5]{1,0} pad(d, c), padding=1_1x0_1
  l = f32[3,5]{1,0} slice(p), slice={[0:6:2], [0:5]}
  win = f32[4,4]{1,0} reduce-window(d, c), window={size=2x1 pad=0_1x0_0}, to_apply=add
  r = f32[4]{0} reduce(d, c), dimensions={1}, to_apply=add
  cmp = pred[4]{0} compare(r, r), direction=LT
  f = (f32[4]{0}, s64[4]{0}) custom-call(r, cmp), custom_call_target="aten.x", custom_call_has_side_effect=true, )hlo"
    R"hlo(backend_config={"args":"(%0, [1, 2.5], %1)","rule":"owned","effect":"random","num_results":3,)hlo"
    R"hlo("results":[0,2],"strides":[[2],[1]],"reason":"no lowering"}
  g = f32[4]{0} get-tuple-element(f), index=0
  ROOT out = (f32[4,4]{0,1}, f32[3,5]{1,0}, f32[4]{0}, f32[4,4]{1,0}) tuple(t, l, g, win), metadata={op_name="end" source_line=3}
}
)hlo";

struct Change {
  std::string from, to;
};
std::string With(const Change& c) {
  std::string text = kBase;
  const size_t at = text.find(c.from);
  EXPECT_NE(at, std::string::npos) << c.from;
  return text.replace(at, c.from.size(), c.to);
}

TEST(CanonicalBytes, NamesMetadataAndTheOrderOfAdditionAreNoPart) {
  const std::string base = BytesOf(*Parse(kBase));
  for (const Change& c : std::vector<Change>{{"HloModule m", "HloModule another"},
                                             {"op_name=\"end\" source_line=3", "op_name=\"start\""},
                                             {"  x = f32[4,8]{1,0} parameter(0)\n  w = f32[8,4]{1,0} parameter(1)\n",
                                              "  w = f32[8,4]{1,0} parameter(1)\n  x = f32[4,8]{1,0} parameter(0)\n"},
                                             {"f32[4,8]{1,0} multiply", "f32[4,8] multiply"},
                                             {"ROOT out", "ROOT renamed"}}) {
    EXPECT_EQ(BytesOf(*Parse(With(c))), base) << c.to;
  }
}

TEST(CanonicalBytes, AllElseIs) {
  std::vector<std::string> all = {BytesOf(*Parse(kBase))};
  for (const Change& c : std::vector<Change>{{"constant(2)", "constant(-2)"},
                                             {"constant(2)", "constant(0)"},
                                             {"constant(2)", "constant(-0)"},
                                             {"constant(2)", "constant(nan)"},
                                             {"multiply(x, wide)", "multiply(wide, x)"},
                                             {"multiply(x", "subtract(x"},
                                             {"padding=1_1x0_1", "padding=0_2x0_1"},
                                             {"padding=1_1x0_1", "padding=2_0x0_1"},
                                             {"[0:6:2]", "[1:6:2]"},
                                             {"[0:6:2]", "[0:5:2]"},
                                             {"size=2x1 pad=0_1x0_0", "size=2x1 pad=1_0x0_0"},
                                             {"direction=LT", "direction=GT"},
                                             {"t = f32[4,4]{0,1}", "t = f32[4,4]{1,0}"},
                                             {"ROOT s = f32[] add", "ROOT s = f32[] maximum"},
                                             {"%0, [1, 2.5], %1", "%0, [1, 2.0], %1"},
                                             {"%0, [1, 2.5], %1", "%0, [1, 2], %1"},
                                             {"%0, [1, 2.5], %1", "%1, [1, 2.5], %0"},
                                             {"\"rule\":\"owned\"", "\"rule\":\"view\""},
                                             {"\"effect\":\"random\"", "\"effect\":\"error\""},
                                             {"\"results\":[0,2]", "\"results\":[0,1]"},
                                             {"\"num_results\":3", "\"num_results\":4"},
                                             {"[[2],[1]]", "[[1],[1]]"},
                                             {"no lowering", "disabled"},
                                             {"target=\"aten.x\"", "target=\"aten.y\""},
                                             {"HloModule m", "HloModule m, is_scheduled=true"},
                                             {"tuple(t, l, g, win)", "tuple(d, l, g, win)"}}) {
    const std::string text = With(c);
    const std::unique_ptr<Module> module = Parse(text);
    ASSERT_NE(module, nullptr);
    all.push_back(BytesOf(*module));
    for (size_t k = 0; k + 1 < all.size(); ++k) EXPECT_NE(all[k], all.back()) << c.from << " -> " << c.to << " is like change " << k;
  }
}

TEST(CanonicalBytes, LongDataMayBeADigest) {
  const std::string text = "HloModule m\nENTRY e { ROOT c = s32[2000] constant({" + [] {
    std::string numbers = "0";
    for (int k = 1; k < 2000; ++k) numbers += "," + std::to_string(k);
    return numbers;
  }() + "}) }";
  const std::unique_ptr<Module> module = Parse(text);
  ByteStream whole, digested([](std::string_view data) { return "digest of " + std::to_string(data.size()); });
  AppendModule(*module, &whole);
  AppendModule(*module, &digested);
  EXPECT_GT(whole.bytes().size(), 8000u);
  EXPECT_LT(digested.bytes().size(), 100u);
  EXPECT_THAT(digested.bytes(), ::testing::HasSubstr("digest of 8000"));
}

// Prefix-free: what two values' bytes are together no other two values' are.
TEST(ByteStream, NumbersEndByThemselves) {
  const auto bytes = [](std::vector<int64_t> numbers) {
    ByteStream out;
    for (int64_t n : numbers) out.Number(n);
    return out.bytes();
  };
  EXPECT_EQ(bytes({0, 1, -1, 63}).size(), 4u);
  EXPECT_EQ(bytes({INT64_MIN}).size(), 10u);
  EXPECT_NE(bytes({64}), bytes({0, 1}));
  EXPECT_NE(bytes({INT64_MAX}), bytes({INT64_MIN}));
  EXPECT_NE(bytes({1, 2}), bytes({2, 1}));
}

TEST(FrameworkCall, IsAnAttributeInMemoryAndJsonInText) {
  const std::unique_ptr<Module> module = Parse(kBase);
  const Instruction* call = nullptr;
  for (const Instruction* op : module->entry()->instructions()) {
    if (op->opcode() == Opcode::kCustomCall) call = op;
  }
  ASSERT_NE(call, nullptr);
  const FrameworkCallSite* site = call->framework_call();
  ASSERT_NE(site, nullptr);
  EXPECT_EQ(site->args.size(), 3u);
  EXPECT_EQ(site->effect, Effect::kRandom);
  EXPECT_EQ(site->num_results, 3);
  EXPECT_EQ((*site->strides)[0][0], Dim(2));
  EXPECT_EQ(Print(*Parse(Print(*module))), Print(*module));
  EXPECT_THAT(Print(*module), ::testing::HasSubstr(ToString(*site)));
  EXPECT_TRUE(StructurallyEqual(*module, *Parse(kBase)));
  EXPECT_FALSE(StructurallyEqual(*module, *Parse(With({"no lowering", "disabled"}))));
}

// What isn't written as it would be printed stays as it stands.
TEST(FrameworkCall, OtherTextsAreKept) {
  for (const char* config : {R"j({"args": "(%0)"})j", R"j({"args":"(%0)"})j", R"j({"reason":"","args":"(%0)","rule":"owned"})j",
                             R"j({"args":5})j", R"j({"args":"(%0","rule":"owned","reason":""})j",
                             R"j({"args":"(%0)","rule":"owned","reason":"","more":1})j"}) {
    const std::string text = std::string("HloModule m\nENTRY e {\n  p = f32[4] parameter(0)\n  ROOT c = f32[4] custom-call(p), ") +
                             "custom_call_target=\"aten.x\", backend_config=" + config + "\n}\n";
    const std::unique_ptr<Module> module = Parse(text);
    EXPECT_EQ(module->entry()->root()->framework_call(), nullptr) << config;
    EXPECT_THAT(Print(*module), ::testing::HasSubstr(config));
  }
}

}  // namespace
}  // namespace tenon
