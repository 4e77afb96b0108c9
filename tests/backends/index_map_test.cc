// Index maps: simplification, goldens of whole fusions (symbolic dims included), and a numeric
// check of every map.
#include "backends/codegen/index/index_map.h"

#include <gtest/gtest.h>

#include "backends/codegen/index/access_trace.h"
#include "backends/cpu/plan/make_plan.h"
#include "hlo/text/text.h"
#include "tests/backends/kernel_runner.h"

namespace tenon {
namespace {

TEST(IndexSpace, ReshapesLeaveNoDivisionWhereDimsOnlySplitOrMerge) {
  IndexSpace s;
  Index a = s.Var(12), b = s.Var(64), c = s.Var(10);
  // [10,12,64] -> [10,768] and back.
  IndexTuple merged = s.Reshape({c, a, b}, {Dim(10), Dim(12), Dim(64)}, {Dim(10), Dim(768)});
  EXPECT_EQ(ToString(merged), "(d2, d0*64 + d1)");
  EXPECT_EQ(ToString(s.Reshape(merged, {Dim(10), Dim(768)}, {Dim(10), Dim(12), Dim(64)})),
            "(d2, d0, d1)");
}

TEST(IndexSpace, SplittingAVariableAndJoiningItAgainIsTheVariable) {
  IndexSpace s;
  Index v = s.Var(120);
  IndexTuple split = s.Delinearize(v, {Dim(4), Dim(5), Dim(6)});
  EXPECT_EQ(ToString(split), "(floordiv(d0, 30), mod(floordiv(d0, 6), 5), mod(d0, 6))");
  EXPECT_EQ(s.Linear(split, {Dim(30), Dim(6), Dim(1)}), v);
  EXPECT_EQ(ToString(s.Linear(split, {Dim(60), Dim(12), Dim(2)})), "d0*2");
}

TEST(IndexSpace, SymbolicDivisorsCancel) {
  DimTable table;
  const Dim s = table.Symbol("s", 1), p = table.Symbol("p", 1);
  IndexSpace space;
  Index group = space.Var(Dim(8) * s), pixel = space.Var(p);
  const Index both = space.Combine(group, p, pixel, 1);
  EXPECT_EQ(space.FloorDiv(both, s * p), space.FloorDiv(group, s));
  EXPECT_EQ(ToString(space.FloorDiv(space.AddConstant(both, 1), s * p)), "floordiv(d0*p + d1 + 1, p*s)");  // one more may be the next

  // Channels become groups of them (group norm); whether 8 is less than 8 * s is not known.
  const IndexTuple grouped = space.Reshape(std::vector<Index>{group, pixel}, {Dim(8) * s, p}, {Dim(8), s, p});
  EXPECT_EQ(ToString(grouped), "(floordiv(d0, s), mod(d0, s), d1)");
}

TEST(IndexSpace, EqualExpressionsAreOnePointer) {
  IndexSpace s;
  Index a = s.Var(7), b = s.Var(9);
  EXPECT_EQ(s.Add(a, b), s.Add(b, a));
  EXPECT_EQ(s.AddConstant(s.AddConstant(a, 3), -3), a);
  EXPECT_EQ(s.Multiply(a, 0), s.Constant(0));
}

TEST(IndexSpace, BoundsDecideWhatTheyCan) {
  IndexSpace s;
  Index a = s.Var(7);
  EXPECT_EQ(Decide({a, 7}), true);
  EXPECT_EQ(Decide({s.AddConstant(a, 1), 7}), std::nullopt);
  EXPECT_EQ(Decide({s.AddConstant(a, 7), 7}), false);
  EXPECT_EQ(Decide({s.AddConstant(a, -7), 7}), false);
}

TEST(Access, SaysHowMemoryIsReachedAlongAVariable) {
  IndexSpace s;
  Index a = s.Var(7), b = s.Var(9);
  EXPECT_EQ(AccessAlong(s.Combine(a, 9, b, 1), b->var).ToString(), "contiguous");
  EXPECT_EQ(AccessAlong(s.Combine(a, 9, b, 1), a->var).ToString(), "strided(9)");
  EXPECT_EQ(AccessAlong(s.Combine(a, 9, b, -1), b->var).ToString(), "strided(-1)");
  EXPECT_EQ(AccessAlong(a, b->var).ToString(), "broadcast");
  EXPECT_EQ(AccessAlong(s.Mod(b, 4), b->var).ToString(), "gathered");
}

// floordiv and mod by brute force over all values, with sums whose terms partly divide.
TEST(IndexSpace, DivisionsAgreeWithArithmetic) {
  for (int64_t ca : {1, 2, 3, 6, 8, 12}) {
    for (int64_t cb : {1, 2, 4, 5}) {
      for (int64_t add : {0, 1, 5, 7}) {
        for (int64_t d : {2, 3, 4, 6, 12}) {
          IndexSpace s;
          Index a = s.Var(5), b = s.Var(6);
          Index e = s.AddConstant(s.Combine(a, ca, b, cb), add);
          Index q = s.FloorDiv(e, d), r = s.Mod(e, d);
          std::function<int64_t(Index, int64_t, int64_t)> value = [&](Index n, int64_t x,
                                                                      int64_t y) -> int64_t {
            switch (n->kind) {
              case IndexNode::Kind::kVar:
                return n == a ? x : y;
              case IndexNode::Kind::kFloorDiv:
                return value(n->inner, x, y) / n->divisor.constant();
              case IndexNode::Kind::kMod:
                return value(n->inner, x, y) % n->divisor.constant();
              case IndexNode::Kind::kRuntime:
                return 0;
              case IndexNode::Kind::kSum: {
                int64_t v = n->addend.constant();
                for (const auto& t : n->terms) v += t.coefficient.constant() * value(t.node, x, y);
                return v;
              }
            }
            return 0;
          };
          for (int64_t x = 0; x < 5; ++x) {
            for (int64_t y = 0; y < 6; ++y) {
              const int64_t v = ca * x + cb * y + add;
              ASSERT_EQ(value(q, x, y), v / d)
                  << ToString(q) << " of " << ToString(e) << " by " << d;
              ASSERT_EQ(value(r, x, y), v % d)
                  << ToString(r) << " of " << ToString(e) << " by " << d;
              if (q->bounded) {
                ASSERT_LE(q->low.constant(), v / d);
                ASSERT_GE(q->high.constant(), v / d);
              }
            }
          }
        }
      }
    }
  }
}

// Every memory access of a fusion whose result has one loop per dim.
std::string TraceOf(std::string_view text) {
  auto module = ParseModule(text);
  if (!module.ok()) return std::string(module.status().message());
  KernelRequest request = DenseRequest(WrapEntryAsFusion(**module));
  auto fused = AnalyzeFusion(request);
  if (!fused.ok()) return std::string(fused.status().message());
  std::vector<PlanLoop> loops;
  for (size_t d = 0; d < fused->dims.size(); ++d)
    loops.push_back({{static_cast<int64_t>(d)}, fused->dims[d], fused->reduced[d]});
  IndexSpace space;
  Iteration iteration(space, *fused, loops);
  std::string out;
  for (const MemoryUse& use : TraceAccesses(space, *fused, iteration).uses) {
    out += (use.store ? "store " : "load ") + use.op->name() + "[" + ToString(use.offset) + "] " +
           AccessAlong(use.offset, iteration.vars.back()->var).ToString() + "\n";
  }
  return out;
}

TEST(IndexMapGolden, MovementOps) {
  EXPECT_EQ(TraceOf(R"(HloModule m
ENTRY e {
  x = f32[10,768] parameter(0)
  b = f32[64] parameter(1)
  r = f32[10,12,64] reshape(x)
  t = f32[12,10,64] transpose(r), dimensions={1,0,2}
  v = f32[12,10,64] reverse(t), dimensions={2}
  s = f32[12,5,64] slice(v), slice={[0:12],[1:10:2],[0:64]}
  bb = f32[12,5,64] broadcast(b), dimensions={2}
  ROOT a = f32[12,5,64] add(s, bb)
})"),
            "load x[d0*64 + d1*1536 + d2*-1 + 831] strided(-1)\n"
            "load b[d2] contiguous\n"
            "store a[d0*320 + d1*64 + d2] contiguous\n");
}

TEST(IndexMapGolden, SymbolicBatchOfAttentionHeads) {
  EXPECT_EQ(TraceOf(R"(HloModule m
ENTRY e {
  x = f32[s0,10,768] parameter(0)
  r = f32[s0,10,12,64] reshape(x)
  t = f32[s0,12,10,64] transpose(r), dimensions={0,2,1,3}
  ROOT n = f32[s0,12,10,64] negate(t)
})"),
            "load x[d0*7680 + d1*64 + d2*768 + d3] contiguous\n"
            "store n[d0*7680 + d1*640 + d2*64 + d3] contiguous\n");
}

TEST(IndexMapGolden, SymbolicSequenceBroadcastAndMerge) {
  EXPECT_EQ(TraceOf(R"(HloModule m
ENTRY e {
  x = f32[4,s1] parameter(0)
  m = f32[s1,s1] parameter(1)
  xb = f32[4,s1,s1] broadcast(x), dimensions={0,2}
  mb = f32[4,s1,s1] broadcast(m), dimensions={1,2}
  ROOT a = f32[4,s1,s1] add(xb, mb)
})"),
            "load x[d0*s1 + d2] contiguous\n"
            "load m[d1*s1 + d2] contiguous\n"
            "store a[d0*s1*s1 + d1*s1 + d2] contiguous\n");
}

TEST(IndexMapGolden, SymbolicConcatenateAndGather) {
  EXPECT_EQ(TraceOf(R"(HloModule m
ENTRY e {
  w = f32[100,64] parameter(0)
  i = s64[s0] parameter(1)
  g = f32[s0,64] gather(w, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,64}
  y = f32[s0,32] parameter(2)
  ROOT c = f32[s0,96] concatenate(g, y), dimensions={1}
})"),
            "load i[d0] broadcast\n"
            "load w[d1 + %i[d0]*64] contiguous\n"
            "load y[d0*32 + d1 + -64] contiguous\n"
            "store c[d0*96 + d1] contiguous\n");
}

}  // namespace
}  // namespace tenon
