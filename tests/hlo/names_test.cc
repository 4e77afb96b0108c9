// ops.def and types.def name exactly what HLO has: hlo_names.txt is a copy of the upstream lists.
#include <fstream>
#include <set>
#include <string>

#include "gtest/gtest.h"
#include "hlo/opcode.h"
#include "hlo/primitive_type.h"

namespace tenon {
namespace {

std::set<std::string> Listed(const std::string& kind) {
  std::ifstream in(std::string(TENON_SOURCE_DIR) + "/tests/hlo/hlo_names.txt");
  std::set<std::string> names;
  std::string line;
  while (std::getline(in, line)) {
    if (line.rfind(kind + " ", 0) == 0) names.insert(line.substr(kind.size() + 1));
  }
  return names;
}

TEST(Names, Opcodes) {
  std::set<std::string> ours;
  for (int op = 0; op < kNumOpcodes; ++op) {
    const OpInfo& info = InfoOf(static_cast<Opcode>(op));
    EXPECT_EQ(static_cast<int>(info.opcode), op);
    EXPECT_EQ(ParseOpcode(info.name), info.opcode);
    ours.emplace(info.name);
  }
  EXPECT_EQ(ours, Listed("opcode"));
  EXPECT_FALSE(ParseOpcode("addd").has_value());
}

TEST(Names, Types) {
  std::set<std::string> ours;
  for (int t = 0; t <= static_cast<int>(PrimitiveType::kBuffer); ++t) {
    PrimitiveType type = static_cast<PrimitiveType>(t);
    EXPECT_EQ(ParsePrimitiveType(PrimitiveTypeName(type)), type);
    ours.emplace(PrimitiveTypeName(type));
  }
  EXPECT_EQ(ours, Listed("type"));
  EXPECT_FALSE(ParsePrimitiveType("f33").has_value());
}

TEST(Names, AttributesByOpcode) {
  EXPECT_EQ(ParseAttr(Opcode::kRngBitGenerator, "algorithm"), Attr::kRngAlgorithm);
  EXPECT_EQ(ParseAttr(Opcode::kDot, "algorithm"), Attr::kAlgorithm);
  EXPECT_EQ(ParseAttr(Opcode::kAdd, "metadata"), Attr::kMetadata);
  EXPECT_EQ(ParseAttr(Opcode::kCompare, "type"), Attr::kComparisonType);
  EXPECT_FALSE(ParseAttr(Opcode::kAdd, "dimensions").has_value());
  EXPECT_FALSE(ParseAttr(Opcode::kAdd, "no_such_key").has_value());
}

}  // namespace
}  // namespace tenon
