// HLO text: goldens of the printer, the round trip, the grammar's quirks, errors with their place, limits.
#include "hlo/text/text.h"

#include <bit>
#include <cstring>

#include "gtest/gtest.h"
#include "hlo/builder.h"
#include "hlo/verifier.h"
#include "tests/hlo/text_files.h"

namespace tenon {
namespace {

std::string ErrorOf(std::string_view text, const ParseOptions& options = {}) {
  const auto module = ParseModule(text, options);
  return module.ok() ? "accepted" : std::string(module.status().message());
}

std::unique_ptr<Module> Parse(std::string_view text, const ParseOptions& options = {}) {
  auto module = ParseModule(text, options);
  EXPECT_TRUE(module.ok()) << module.status() << "\n" << text;
  return module.ok() ? std::move(module).value() : nullptr;
}

void ExpectRoundTrip(const Module& module, const PrintOptions& options) {
  const std::string once = Print(module, options);
  const auto again = Parse(once);
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(once, Print(*again, options));
}

TEST(Text, FilesPrintAsTheirGoldens) {
  for (const auto& path : TestFiles("text")) {
    SCOPED_TRACE(path);
    const auto module = Parse(ReadTestFile(path));
    ASSERT_NE(module, nullptr);
    auto golden = path;
    ExpectGolden(golden.replace_extension(".expected"), Print(*module) + "\n// canonical\n" + [&] {
      PrintOptions canonical;
      canonical.canonical = true;
      return Print(*module, canonical);
    }());
  }
}

TEST(Text, RoundTripIsAFixedPointWithEveryOption) {
  for (const auto& path : TestFiles("text")) {
    SCOPED_TRACE(path);
    const auto module = Parse(ReadTestFile(path));
    ASSERT_NE(module, nullptr);
    std::string why;
    EXPECT_TRUE(StructurallyEqual(*module, *Parse(Print(*module)), &why)) << why;
    for (int bits = 0; bits < 64; ++bits) {
      PrintOptions o;
      o.percent = bits & 1;
      o.operand_shapes = bits & 2;
      o.layouts = bits & 4;
      o.metadata = bits & 8;
      o.backend_config = bits & 16;
      o.canonical = bits & 32;
      ExpectRoundTrip(*module, o);
    }
  }
}

TEST(Text, CanonicalFormForgetsNamesAndOrder) {
  PrintOptions canonical;
  canonical.canonical = true;
  const auto a = Parse("ENTRY e { x = f32[2] parameter(0) y = f32[2] parameter(1) s = f32[2] sine(x) "
                       "c = f32[2] cosine(y) ROOT r = f32[2] add(s, c), metadata={op_name=\"q\"} }");
  const auto b = Parse("HloModule other ENTRY f { b = f32[2]{0} parameter(1) a = f32[2]{0} parameter(0) "
                       "k = f32[2] cosine(b) j = f32[2] sine(a) ROOT z = f32[2] add(j, k) }");
  const auto c = Parse("ENTRY e { x = f32[2] parameter(0) y = f32[2] parameter(1) s = f32[2] sine(y) "
                       "c = f32[2] cosine(x) ROOT r = f32[2] add(s, c) }");
  EXPECT_EQ(Print(*a, canonical), Print(*b, canonical));
  EXPECT_NE(Print(*a, canonical), Print(*c, canonical));
}

TEST(Text, CanonicalElisionStillTellsConstantsApart) {
  PrintOptions o;
  o.canonical = true;
  o.max_constant_elements = 1;
  const auto a = Parse("r = s32[2] constant({1, 2})"), b = Parse("r = s32[2] constant({1, 3})");
  EXPECT_NE(Print(*a, o), Print(*b, o));
  o.canonical = false;
  EXPECT_NE(Print(*a, o).find("constant({...})"), std::string::npos);
}

TEST(Text, ErrorsSayWhereAndWhat) {
  EXPECT_EQ(ErrorOf("HloModule m\n\nENTRY e {\n  x = f32[2] foo(y)\n}"),
            "line 4, column 14: wanted an opcode, got 'foo'");
  EXPECT_EQ(ErrorOf("ENTRY e { x = f32[2] negate(y) }"),
            "line 1, column 29: wanted an instruction defined before, got 'y'");
  EXPECT_EQ(ErrorOf("ENTRY e { x = f32[2] parameter(0)\n y = f32[3] negate(x) }"),
            "line 2, column 2: wanted negate to have shape f32[2], got f32[3]");
  EXPECT_EQ(ErrorOf("ENTRY e { x = f32[2] parameter(0) x = f32[2] negate(x) }"),
            "line 1, column 35: wanted a new instruction name, got 'x' again");
  EXPECT_EQ(ErrorOf("x = f32[2] constant({1, 2, 3})"), "line 1, column 26: wanted '}', got ','");
  EXPECT_EQ(ErrorOf("x = s8[] constant(128)"), "line 1, column 19: wanted a value of s8, got '128'");
  EXPECT_EQ(ErrorOf("x = u8[] constant(-1)"), "line 1, column 19: wanted a value of u8, got '-1'");
  EXPECT_EQ(ErrorOf("x = f32[2]{1} parameter(0)"),
            "line 1, column 12: wanted a layout that permutes 1 dimensions, got {1}");
  EXPECT_EQ(ErrorOf("ENTRY e { x = f32[] parameter(0) } ENTRY f { x = f32[] parameter(0) }"),
            "line 1, column 42: wanted one ENTRY, got 'f' too");
  EXPECT_EQ(ErrorOf("ENTRY e { x = f32[] parameter(1) }"), "line 1, column 11: wanted parameter(0) in e, got none");
  EXPECT_EQ(ErrorOf("ENTRY e { x = f32[] parameter(0) y = f32[] parameter(0) }"),
            "line 1, column 34: wanted each parameter number once, got 0 again");
  EXPECT_EQ(ErrorOf("ENTRY e (x: f32[2]) -> f32[2] { x = f32[3] parameter(0) }"),
            "line 1, column 7: wanted parameter 0 of f32[2], got f32[3]");
  EXPECT_EQ(ErrorOf("r = f32[] custom-call(), custom_call_target=\"a\\q\""),
            "line 1, column 45: wanted a string with valid escapes, got '\"'");
  EXPECT_EQ(ErrorOf(""), "line 1, column 1: wanted HLO text, got end of text");
  EXPECT_EQ(ErrorOf("HloModule m"), "line 1, column 12: wanted a computation, got end of text");
  EXPECT_EQ(ErrorOf("r = f32[] custom-call(), custom_call_target=\"x\", custom_call_target=\"y\""),
            "line 1, column 50: wanted each attribute once, got 'custom_call_target' again");
}

TEST(Text, ElidedConstantsAreRefusedOrFilledDeterministically) {
  const std::string text = "w = f32[2,3] constant({...})";
  EXPECT_NE(ErrorOf(text).find("the dump left it out"), std::string::npos) << ErrorOf(text);
  ParseOptions fill;
  fill.fill_elided_constants = true;
  const auto a = Parse(text, fill), b = Parse(text, fill), c = Parse("v = f32[2,3] constant({...})", fill);
  const Literal& l = a->entry()->root()->literal();
  EXPECT_TRUE(l == b->entry()->root()->literal());
  EXPECT_FALSE(l == c->entry()->root()->literal());
  EXPECT_FALSE(l.IsSplat());
}

// Every bit pattern of the small floats, and hard ones of the wide, come back as the same bits.
TEST(Text, FloatsRoundTripBitForBit) {
  for (PrimitiveType type : {PrimitiveType::kF16, PrimitiveType::kBF16, PrimitiveType::kF8E5M2, PrimitiveType::kF8E4M3,
                             PrimitiveType::kF8E4M3FN, PrimitiveType::kF8E4M3B11FNUZ, PrimitiveType::kF8E3M4,
                             PrimitiveType::kF8E5M2FNUZ, PrimitiveType::kF8E4M3FNUZ, PrimitiveType::kF8E8M0FNU}) {
    const int64_t width = ByteWidth(type), n = width == 1 ? 256 : 65536;
    Literal all(Shape::Array(type, {n}));
    for (int64_t i = 0; i < n; ++i) std::memcpy(all.mutable_bytes() + i * width, &i, width);
    Module module;
    Computation* c = module.AddComputation("main");
    c->set_root(c->AddConstant(all));
    const std::string text = Print(*c->root());
    const auto back = ParseLiteral(all.shape(), std::string_view(text).substr(text.find("constant(") + 9,
                                                                               text.rfind(')') - text.find("constant(") - 9));
    ASSERT_TRUE(back.ok()) << back.status();
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(std::memcmp(back->bytes() + i * width, all.bytes() + i * width, width), 0)
          << std::string(PrimitiveTypeName(type)) << " " << i;
    }
  }
}

TEST(Text, DecimalsRoundOnce) {
  // Halfway between two floats but for the last digit: through double the tie would go the other way.
  const auto l = ParseLiteral(Shape::Scalar(PrimitiveType::kF32), "1.00000005960464477540");
  ASSERT_TRUE(l.ok());
  EXPECT_EQ(std::bit_cast<uint32_t>(l->data<float>()[0]), 0x3f800001u);
}

TEST(Text, SymbolsKeepTheirRanges) {
  Module module;
  const Dim s = module.dims().Symbol("s0", 2, 64, 2, 40);
  Computation* c = module.AddComputation("main");
  Builder b(c);
  c->set_root(b.Unary(Opcode::kNegate, b.Parameter(0, Shape(PrimitiveType::kF32, {s, 3}))));
  module.set_entry(c);
  const std::string text = Print(module);
  EXPECT_NE(text.find("symbols={s0:[2,64]%2~40}"), std::string::npos) << text;
  const auto again = Parse(text);
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(UpperBound(again->entry()->root()->shape().dim(0)), 64);
  EXPECT_EQ(Divides(2, again->entry()->root()->shape().dim(0)), Ternary::kYes);
  EXPECT_EQ(Typical(again->entry()->root()->shape().dim(0)), 40);
  const std::string refused = ParseModule("HloModule m, symbols={s:[2,64]~0}\n").status().ToString();
  EXPECT_NE(refused.find("a size to plan for >= 1"), std::string::npos) << refused;
}

TEST(Text, ProgrammaticNamesPrintParsably) {
  Module module("a module/1");
  Computation* c = module.AddComputation("forward pass");
  Builder b(c);
  Instruction* x = b.Parameter(0, Shape::Scalar(PrimitiveType::kF32), "x y");
  Instruction* y = b.Unary(Opcode::kNegate, x);
  y->set_name("x_y");
  c->set_root(b.Binary(Opcode::kAdd, x, y));
  module.set_entry(c);
  ExpectRoundTrip(module, {});
}

// Forms that other versions of XLA print.
TEST(Text, AcceptsWhatXlaMayLeaveOut) {
  for (const char* text : {
           "r = f32[2]{0} broadcast(f32[]{} x)",
           "r = f32[2] map(f32[2] x), to_apply={ a = f32[] parameter(0) b = f32[] negate(a) }",
           "r = (f32[2], s32[2]) topk(f32[4] x), k=2",
           "r = u8[8] bitcast(pred[8] x)",
           "r = ((f32[2]), f32[2]) fusion-start(f32[2] x), kind=kLoop, calls={ a = f32[2] parameter(0) b = f32[2] negate(a) }",
           "r = f32[2] call(f32[2] x), to_apply={ a = f32[2] parameter(0) }, is_composite=true, "
           "frontend_attributes={composite.attributes={a = {1, 2}},composite.name=\"x\"}",
           "r = f32[2] all-reduce(f32[2] x), replica_groups=[2,4]<=[4,2]T(1,0), to_apply={ a = f32[] parameter(0) b = f32[] "
           "parameter(1) c = f32[] add(a, b) }",
           "r = f32[2,2] constant({ /*i0=0*/ { 1., .5 }, /*i0=1*/ { 1e3, -2E-3 } })",
           "r = f32[2] parameter(0), sharding={mesh['x'=2,'y'=4], [{'x'}, {}]}, original_value={{\"x\"}}",
       }) {
    const auto m = Parse(text);
    ASSERT_NE(m, nullptr);
    ExpectRoundTrip(*m, {});
  }
}

// A pass adds operands behind their users: the print puts definitions first, and canonically nothing changes.
TEST(Text, DefinitionsPrintBeforeUsers) {
  const auto m = Parse("ENTRY e { x = f32[] parameter(0) ROOT r = f32[] negate(x) }");
  Instruction* x = m->entry()->parameter(0);
  m->entry()->root()->ReplaceOperand(0, m->entry()->Add(Opcode::kSine, x->shape(), {x}, "late"));
  const std::string text = Print(*m);
  EXPECT_LT(text.find("late = "), text.find("r = ")) << text;
  ExpectRoundTrip(*m, {});
}

TEST(Text, ModulePathTravelsAsAFrontendAttribute) {
  const auto m = Parse("r = f32[] parameter(0), frontend_attributes={a=\"1\",tenon_module_path=\"model.layer\",b=\"2\"}");
  EXPECT_EQ(m->entry()->root()->metadata().module_path, "model.layer");
  EXPECT_EQ(m->entry()->root()->attrs().get<std::string>(Attr::kFrontendAttributes), "{a=\"1\",b=\"2\"}");
}

TEST(Text, ShapesAlone) {
  DimTable dims;
  const auto shape = ParseShape("(f32[2,s0]{0,1:T(8,128)}, token[])", &dims);
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_EQ(shape->ToString(true), "(f32[2,s0]{0,1:T(8,128)}, token[])");
  EXPECT_FALSE(ParseShape("f32[2] x", &dims).ok());
  EXPECT_FALSE(ParseShape("f33[2]", &dims).ok());
  EXPECT_FALSE(ParseShape("token[2]", &dims).ok());
  EXPECT_FALSE(ParseShape("f32[-1]", &dims).ok());
}

TEST(Text, MemorySpaces) {
  DimTable dims;
  const std::pair<const char*, int64_t> shapes[] = {{"f32[2]", 0},           {"f32[2]{0}", 0},
                                                    {"f32[2]{0:S(1)}", 1},   {"f32[2]{0:T(8,128)S(5)}", 5},
                                                    {"f32[2]{0:TS(3)}", 0},  {"f32[2]{0:S(3)T(4)}", 3},
                                                    {"f32[]{:S(2)}", 2},     {"f32[2]{0:S(99999999999999999999)}", 0}};
  for (const auto& [text, space] : shapes) {
    auto shape = ParseShape(text, &dims);
    ASSERT_TRUE(shape.ok()) << text << shape.status();
    EXPECT_EQ(shape->memory_space(), space) << text;
    shape->set_memory_space(7);
    EXPECT_EQ(shape->memory_space(), 7) << text;
    const auto again = ParseShape(shape->ToString(true), &dims);
    ASSERT_TRUE(again.ok()) << shape->ToString(true) << again.status();
    EXPECT_EQ(again->memory_space(), 7) << shape->ToString(true);
    shape->set_memory_space(0);
    EXPECT_EQ(shape->memory_space(), 0) << text;
  }
  EXPECT_EQ(ParseShape("f32[2]{0:T(8,128)S(5)}", &dims)->ToString(true), "f32[2]{0:T(8,128)S(5)}");
}

std::string Repeat(std::string_view s, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += s;
  return out;
}

// Text made to exhaust stack, memory or time is refused quickly.
TEST(Text, LimitsHold) {
  constexpr int kDeep = 200'000;
  EXPECT_NE(ErrorOf("x = " + Repeat("(", kDeep)), "accepted");
  EXPECT_NE(ErrorOf("x = f32[] constant(" + Repeat("{", kDeep)), "accepted");
  EXPECT_NE(ErrorOf("x = f32[] " + Repeat("negate(", kDeep)), "accepted");
  EXPECT_NE(ErrorOf("x = f32[] call(), to_apply=" + Repeat("{ x = f32[] call(), to_apply=", kDeep)), "accepted");
  EXPECT_NE(ErrorOf("x = f32[" + Repeat("(", kDeep)), "accepted");
  EXPECT_NE(ErrorOf("x = f32[2]{0:" + Repeat("(", kDeep)), "accepted");
  EXPECT_NE(ErrorOf("x = f32[], sharding=" + Repeat("{", kDeep)), "accepted");
  EXPECT_NE(ErrorOf("x = f32[] parameter(4000000000)"), "accepted");
  EXPECT_NE(ErrorOf("x = f32[4000000000] constant({1})"), "accepted");
  EXPECT_NE(ErrorOf("x = f32[99999999999999999999] parameter(0)"), "accepted");
  EXPECT_NE(ErrorOf("x = f32[9223372036854775807] parameter(0)"), "accepted");
  EXPECT_NE(ErrorOf("x = f32[281474976710656,281474976710656] dot(f32[281474976710656,1] a, f32[1,281474976710656] b), "
                    "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
            "accepted");
  EXPECT_NE(ErrorOf("x = f32[5857551346232161*s0,3072] reshape(f32[6144*s0] y)"), "accepted");
  EXPECT_NE(ErrorOf("x = f32[4000000000000000000*s0*4000000000000000000] parameter(0)"), "accepted");
  ParseOptions fill;
  fill.fill_elided_constants = true;
  EXPECT_NE(ErrorOf("x = f32[4000000000] constant({...})", fill), "accepted");
}

// Long lists of everything take time linear in their length: these would take minutes otherwise.
TEST(Text, LongModulesParseInLinearTime) {
  constexpr int kMany = 50'000;
  std::string chain = "ENTRY e {\n v0 = f32[] parameter(0)\n";
  std::string list;
  for (int i = 1; i < kMany; ++i) {
    chain += " v" + std::to_string(i) + " = f32[] add(v" + std::to_string(i - 1) + ", v0)\n";
    list += ", v" + std::to_string(i);
  }
  chain += " ROOT t = tuple(v0" + list + ") }";
  const auto module = Parse(chain);
  ASSERT_NE(module, nullptr);
  EXPECT_EQ(module->instruction_count(), kMany + 1);
  ExpectRoundTrip(*module, {});
}

}  // namespace
// What isn't known to lie inside of the operand might be read beyond it.
TEST(Symbols, WindowsOfAGatherLieInsideOfTheOperand) {
  const auto parsed = [](const std::string& size) {
    return ParseModule(R"(HloModule m, symbols={s:[2,64],t:[2,64]}
ENTRY e {
  x = f32[5,s] parameter(0)
  y = f32[t] parameter(1)
  i = s64[3] constant({1, 2, 4})
  g = gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,)" + size + R"(}
  ROOT r = tuple(g, y)
})").status();
  };
  for (const char* inside : {"s", "s-1", "2"}) EXPECT_TRUE(parsed(inside).ok()) << inside << ": " << parsed(inside);
  for (const char* unknown : {"t", "s+t-3", "s-3", "s+1"}) {
    EXPECT_NE(parsed(unknown).ToString().find("gather_c2"), std::string::npos) << unknown;
  }
}

}  // namespace tenon
