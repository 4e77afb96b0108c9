// Every file of tests/ops evaluates to what it says.
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "hlo/eval/evaluator.h"
#include "hlo/eval/internal.h"
#include "hlo/text/text.h"
#include "tests/eval/op_cases.h"

namespace tenon {
namespace {

class Ops : public testing::TestWithParam<std::filesystem::path> {};

void ExpectCase(const OpFile& file, const OpCase& c) {
  absl::StatusOr<Literal> result = Evaluate(*file.module, c.args);
  if (!c.error.empty()) {
    ASSERT_FALSE(result.ok());
    EXPECT_NE(std::string(result.status().message()).find(c.error), std::string::npos)
        << result.status();
    return;
  }
  ASSERT_TRUE(result.ok()) << result.status();
  std::vector<Literal> leaves = Leaves(*result);
  ASSERT_EQ(leaves.size(), c.expected.size());
  for (size_t k = 0; k < leaves.size(); ++k) {
    LiteralDifference d = CompareLiterals(leaves[k], c.expected[k], file.tolerance);
    EXPECT_TRUE(d.within) << "result " << k << " " << d.what << "\ngot    " << leaves[k].ToString()
                          << "\nwanted " << c.expected[k].ToString();
  }
}

TEST_P(Ops, EvaluatesAsExpected) {
  absl::StatusOr<OpFile> file = ReadOpFile(GetParam());
  ASSERT_TRUE(file.ok()) << file.status();
  for (const OpCase& c : file->cases) {
    SCOPED_TRACE(c.name);
    ExpectCase(*file, c);
  }
}

// A clone and a reparsed print mean the same.
TEST_P(Ops, SurvivesCloneAndText) {
  absl::StatusOr<OpFile> file = ReadOpFile(GetParam());
  ASSERT_TRUE(file.ok()) << file.status();
  std::unique_ptr<Module> clone = file->module->Clone();
  std::string why;
  EXPECT_TRUE(StructurallyEqual(*file->module, *clone, &why)) << why;
  absl::StatusOr<std::unique_ptr<Module>> reparsed = ParseModule(Print(*clone));
  ASSERT_TRUE(reparsed.ok()) << reparsed.status();
  EXPECT_TRUE(StructurallyEqual(*file->module, **reparsed, &why)) << why;
  file->module = *std::move(reparsed);
  for (const OpCase& c : file->cases) ExpectCase(*file, c);
}

std::string NameOf(const testing::TestParamInfo<std::filesystem::path>& info) {
  return info.param.parent_path().filename().string() + "_" + info.param.stem().string();
}

INSTANTIATE_TEST_SUITE_P(All, Ops, testing::ValuesIn(OpFilePaths()), NameOf);

TEST(OpsCoverage, EveryOpcodeTheEvaluatorKnowsHasACase) {
  absl::flat_hash_set<Opcode> used;
  for (const auto& path : OpFilePaths()) {
    absl::StatusOr<OpFile> file = ReadOpFile(path);
    ASSERT_TRUE(file.ok()) << path << file.status();
    for (const Computation* c : file->module->computations()) {
      for (const Instruction* i : c->instructions()) used.insert(i->opcode());
    }
  }
  std::vector<std::string> missing;
  for (int op = 0; op < kNumOpcodes; ++op) {
    Opcode opcode = static_cast<Opcode>(op);
    if (eval::HandlerOf(opcode) != nullptr && !used.contains(opcode)) {
      missing.emplace_back(OpcodeName(opcode));
    }
  }
  EXPECT_TRUE(missing.empty()) << absl::StrJoin(missing, " ");
}

TEST(OpsCoverage, WhatHasNoMeaningOnOneDeviceIsThisList) {
  std::vector<std::string> without;
  for (int op = 0; op < kNumOpcodes; ++op) {
    Opcode opcode = static_cast<Opcode>(op);
    if (eval::HandlerOf(opcode) == nullptr) without.emplace_back(OpcodeName(opcode));
  }
  // parameter and constant are the evaluator's own.
  EXPECT_EQ(absl::StrJoin(without, " "),
            "constant shuffle parameter send send-done recv recv-done infeed outfeed");
}

// The comparison is worth something: one changed element of an expectation is seen in every file.
TEST(OpsCoverage, AWrongExpectationIsCaughtInEveryFile) {
  for (const auto& path : OpFilePaths()) {
    absl::StatusOr<OpFile> file = ReadOpFile(path);
    ASSERT_TRUE(file.ok());
    for (const OpCase& c : file->cases) {
      absl::StatusOr<Literal> result = Evaluate(*file->module, c.args);
      if (!result.ok()) continue;
      std::vector<Literal> leaves = Leaves(*result);
      for (size_t k = 0; k < leaves.size(); ++k) {
        if (leaves[k].num_elements() == 0) continue;
        Literal planted = c.expected[k];
        int64_t last = planted.num_elements() - 1;
        planted.SetFromDouble(last, planted.GetAsDouble(last) == 1 ? 0 : 1);
        EXPECT_FALSE(CompareLiterals(leaves[k], planted, file->tolerance).within)
            << path << " " << c.name << " result " << k;
      }
    }
  }
}

}  // namespace
}  // namespace tenon
