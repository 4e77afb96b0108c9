#include <map>
#include <random>
#include <thread>

#include "gtest/gtest.h"
#include "hlo/dim/dim.h"

namespace tenon {
namespace {

class DimTest : public testing::Test {
 protected:
  DimTable table;
  Dim s = table.Symbol("s0"), t = table.Symbol("s1"), n = table.Symbol("n", 1),
      eight = table.Symbol("e", 8, 64, 8);

  Dim P(std::string_view text) {
    absl::StatusOr<Dim> d = table.Parse(text);
    EXPECT_TRUE(d.ok()) << d.status();
    return d.ok() ? *d : Dim(-1);
  }
};

TEST_F(DimTest, ConstantsFold) {
  EXPECT_EQ(Dim(6) * Dim(7), Dim(42));
  EXPECT_EQ(FloorDiv(-7, 2), Dim(-4));
  EXPECT_EQ(Mod(-7, 2), Dim(1));
  EXPECT_EQ(Mod(7, -2), Dim(-1));
  EXPECT_EQ(CeilDiv(7, 2), Dim(4));
  EXPECT_EQ(Min(3, 5), Dim(3));
  EXPECT_EQ(Max(3, 5), Dim(5));
  EXPECT_EQ(Dim(0).constant(), 0);
  EXPECT_EQ(Dim(-1).constant(), -1);
  EXPECT_EQ(Dim((int64_t{1} << 62) - 1).constant(), (int64_t{1} << 62) - 1);
  EXPECT_THROW(Dim{INT64_MAX}, InternalError);  // an "until the end" of Python must be clamped, not wrapped
  EXPECT_THROW(Dim(int64_t{1} << 40) * Dim(int64_t{1} << 40), InternalError);
}

TEST_F(DimTest, EqualExpressionsAreOneObject) {
  EXPECT_EQ(s + t, t + s);
  EXPECT_EQ((s + 1) * (s - 1), s * s - 1);
  EXPECT_EQ(2 * (s + t) - s - t, s + t);
  EXPECT_EQ(s - s, Dim(0));
  EXPECT_EQ((s * t) * n, n * (t * s));
  EXPECT_EQ(Min(s, t), Min(t, s));
  EXPECT_EQ(Max(Max(s, t), n), Max(s, Max(n, t)));
}

TEST_F(DimTest, TypicalSizes) {
  EXPECT_EQ(Typical(12), 12);
  EXPECT_EQ(Typical(2 * s + 1), 513);
  EXPECT_EQ(Typical(Min(FloorDiv(s, 3), 80)), 80);
  EXPECT_EQ(Typical(0 - Mod(s, 100)), -56);
  EXPECT_EQ(Typical(table.Symbol("few", 2, 9)), 9);
  EXPECT_EQ(Typical(table.Symbol("many", 1000)), 1000);
  EXPECT_EQ(Typical(table.Symbol("thirds", 3, INT64_MAX, 3)), 255);
  const Dim batch = table.Symbol("batch", 1, INT64_MAX, 1, 8), far = table.Symbol("far", 1, 64, 1, 1000);
  EXPECT_EQ(Typical(3 * batch), 24);
  EXPECT_EQ(Typical(far), 64);
  DimTable other;
  EXPECT_EQ(Typical(other.Import(batch * 2)), 16);
  EXPECT_THROW(table.Symbol("batch", 1, INT64_MAX, 1, 9), InternalError);
}

TEST_F(DimTest, DivisionCancels) {
  EXPECT_EQ(FloorDiv(4 * s, 2), 2 * s);
  EXPECT_EQ(Mod(4 * s, 2), Dim(0));
  EXPECT_EQ(FloorDiv(6 * s, 4), s + FloorDiv(s, 2));
  EXPECT_EQ(FloorDiv(s * n + n, n), s + 1);
  EXPECT_EQ(Mod(s * n + n, n), Dim(0));
  EXPECT_EQ(FloorDiv(FloorDiv(s, 2), 3), FloorDiv(s, 6));
  EXPECT_EQ(FloorDiv(FloorDiv(s + 7, 8) + 1, 2), FloorDiv(s + 15, 16));  // sizes of strided windows
  EXPECT_EQ(FloorDiv(FloorDiv(s - 3, 2) - 3, 2), FloorDiv(s - 9, 4));
  EXPECT_EQ(Mod(Mod(s, 6), 3), Mod(s, 3));
  EXPECT_EQ(Mod(4 * s + 3, 4), Dim(3));
  EXPECT_EQ(Mod(2 * s, 4), 2 * Mod(s, 2));
}

TEST_F(DimTest, RangesDecideDivisions) {
  Dim r = table.Symbol("r", 0, 7), b = table.Symbol("b", 8, 100);
  EXPECT_EQ(FloorDiv(s * b + r, b), s);
  EXPECT_EQ(Mod(s * b + r, b), r);
  EXPECT_EQ(FloorDiv(8 * s + r, 8), s);
  EXPECT_EQ(FloorDiv(s * n + Mod(t, n), n), s);
  EXPECT_EQ(Mod(r, 8), r);
  EXPECT_EQ(FloorDiv(-1, n), Dim(-1));  // so bags of t elements, one behind the other in s * t, are s
  EXPECT_EQ(Mod(-1, n), n - 1);
  EXPECT_EQ(CeilDiv(s * n, n), s);
  EXPECT_EQ(FloorDiv(-8, b), Dim(-1));
  EXPECT_NE(FloorDiv(-9, b), Dim(-1));
}

TEST_F(DimTest, QuotientAndRemainderRecombine) {
  EXPECT_EQ(2 * FloorDiv(s, 2) + Mod(s, 2), s);
  EXPECT_EQ(n * FloorDiv(s, n) + Mod(s, n), s);
  EXPECT_EQ(8 * FloorDiv(eight, 8), eight);
  EXPECT_EQ(Mod(eight, 4), Dim(0));
}

TEST_F(DimTest, ComparisonsAnswerThreeWays) {
  EXPECT_EQ(Less(s, s + 1), Ternary::kYes);
  EXPECT_EQ(Less(s, s), Ternary::kNo);
  EXPECT_EQ(Less(s, t), Ternary::kUnknown);
  EXPECT_EQ(Less(0, n), Ternary::kYes);
  EXPECT_EQ(Less(0, s), Ternary::kUnknown);
  EXPECT_EQ(Equal(s, s + 1), Ternary::kNo);
  EXPECT_EQ(Equal(2 * s, 2 * t + 1), Ternary::kNo);
  EXPECT_EQ(Equal(s, t), Ternary::kUnknown);
  EXPECT_EQ(Equal(n, 0), Ternary::kNo);
  EXPECT_EQ(Equal(FloorDiv(eight, 2) + 2, 2 * FloorDiv(eight, 4) + 2), Ternary::kYes);
  EXPECT_EQ(Equal(FloorDiv(eight, 2) + FloorDiv(eight, 4), 3 * FloorDiv(eight, 4)), Ternary::kYes);
  EXPECT_EQ(Equal(s * FloorDiv(eight, 2) + 1, 2 * s * FloorDiv(eight, 4) + 2), Ternary::kNo);
  EXPECT_EQ(Equal(FloorDiv(s, 2), 2 * FloorDiv(s, 4)), Ternary::kUnknown);
  EXPECT_EQ(Divides(4, 8 * s + 4), Ternary::kYes);
  EXPECT_EQ(Divides(4, 8 * s + 2), Ternary::kNo);
  EXPECT_EQ(Divides(4, s), Ternary::kUnknown);
  EXPECT_EQ(Divides(8, eight), Ternary::kYes);
  EXPECT_EQ(Divides(n, n * s), Ternary::kYes);
  EXPECT_EQ(Divides(n, s), Ternary::kUnknown);
}

TEST_F(DimTest, BoundsFollowTheSymbols) {
  EXPECT_EQ(LowerBound(eight + 1), 9);
  EXPECT_EQ(UpperBound(2 * eight), 128);
  EXPECT_EQ(LowerBound(s - t), INT64_MIN);
  EXPECT_EQ(UpperBound(s), INT64_MAX);
  EXPECT_EQ(UpperBound(Mod(s, 5)), 4);
  EXPECT_EQ(LowerBound((s - t) * (s - t) * 0 + s), 0);
  // Windows that fit into a size, and those of a size with padding.
  EXPECT_EQ(LowerBound(s - 2 * FloorDiv(s, 2)), 0);
  EXPECT_EQ(UpperBound(s - 2 * FloorDiv(s, 2)), 1);
  EXPECT_EQ(Less(2 * (FloorDiv(s, 2) - 1) + 1, s), Ternary::kYes);
  EXPECT_EQ(Less(2 * (FloorDiv(s + 1, 2) - 1), s), Ternary::kYes);
  EXPECT_EQ(Less(2 * (FloorDiv(s + 1, 2) - 1) + 1, s), Ternary::kUnknown);
  EXPECT_EQ(Less(6 * FloorDiv(s + t, 3), 2 * s + 2 * t + 1), Ternary::kYes);
}

TEST_F(DimTest, MinMaxKnowTheOrder) {
  EXPECT_EQ(Max(s, s + 1), s + 1);
  EXPECT_EQ(Min(s, s + 1), s);
  EXPECT_EQ(Max(n, 1), n);
  EXPECT_EQ(Max(s, 0), s);
  EXPECT_EQ(Min(Max(s, t), s), s);
}

TEST_F(DimTest, PrintsAndParses) {
  for (Dim d : {s, 4 * s + 1, s - 1, 0 - s, s * t - 3, FloorDiv(s, 2), Mod(s + t, n), Min(s, t),
                2 * Max(s, t) - 1, FloorDiv(s * s + t, n) * t}) {
    EXPECT_EQ(P(d.ToString()), d) << d;
  }
  EXPECT_EQ((4 * s + 1).ToString(), "4*s0+1");
  EXPECT_EQ(FloorDiv(s, 2).ToString(), "floordiv(s0,2)");
}

TEST_F(DimTest, ParsesPythonAndSympy) {
  EXPECT_EQ(P("(s0 + 1)//2"), CeilDiv(s, 2));
  EXPECT_EQ(P("FloorDiv(s0, 2)"), FloorDiv(s, 2));
  EXPECT_EQ(P("Mod(s0, 2)"), Mod(s, 2));
  EXPECT_EQ(P("s0 % 2"), Mod(s, 2));
  EXPECT_EQ(P("Max(1, s0, s1)"), Max(1, Max(s, t)));
  EXPECT_EQ(P("s0**2 - 1"), s * s - 1);
  EXPECT_EQ(P("-s0*-1"), s);
  EXPECT_EQ(P("PythonMod(s0, 3)"), Mod(s, 3));
}

TEST_F(DimTest, RefusesWhatIsNotADimension) {
  for (std::string_view text :
       {"", "s0 +", "(s0", "s0)", "s0//0", "1 2", "foo(s0,1)", "min(s0)", "99999999999999999999",
        "4611686018427387903*4611686018427387903", "s0**99", "$("}) {
    EXPECT_FALSE(table.Parse(text).ok()) << text;
  }
  EXPECT_FALSE(table.Parse(std::string(10000, '(')).ok());
  EXPECT_FALSE(table.Parse(std::string(10000, '-') + "1").ok());
}

TEST_F(DimTest, ImportsByName) {
  DimTable other;
  Dim foreign = FloorDiv(s * n + 1, 3) + Min(s, t);
  EXPECT_EQ(other.Import(foreign).ToString(), foreign.ToString());
  EXPECT_EQ(table.Import(other.Import(foreign)), foreign);
  EXPECT_EQ(LowerBound(other.Import(n)), 1);
}

TEST_F(DimTest, SymbolsOfTwoTablesMustNotMeet) {
  DimTable other;
  EXPECT_THROW(s + other.Symbol("x"), InternalError);
  EXPECT_THROW(table.Symbol("n", 3), InternalError);
  EXPECT_THROW(s.constant(), InternalError);
  EXPECT_THROW(FloorDiv(s, 0), InternalError);
}

// Random expressions: whatever the simplifier does, the value stays, bounds hold and answers are true.
class Generator {
 public:
  Generator(DimTable& table, uint64_t seed) : random_(seed) {
    symbols_ = {table.Symbol("a", 0, 40), table.Symbol("b", 1, 9), table.Symbol("c", 4, 32, 4),
                table.Symbol("d", -5, 5)};
  }

  int64_t Pick(int64_t lo, int64_t hi) { return lo + random_() % (hi - lo + 1); }

  void Assign() {
    values_ = {{"a", Pick(0, 40)}, {"b", Pick(1, 9)}, {"c", 4 * Pick(1, 8)}, {"d", Pick(-5, 5)}};
  }

  // An expression and its value computed beside it.
  std::pair<Dim, int64_t> Make(int depth) {
    if (depth == 0 || Pick(0, 5) == 0) {
      if (Pick(0, 2) == 0) {
        int64_t c = Pick(-6, 12);
        return {c, c};
      }
      Dim symbol = symbols_[Pick(0, symbols_.size() - 1)];
      return {symbol, values_.at(symbol.ToString())};
    }
    auto [x, xv] = Make(depth - 1);
    auto [y, yv] = Make(depth - 1);
    switch (Pick(0, 6)) {
      case 0:
        return {x + y, xv + yv};
      case 1:
        return {x - y, xv - yv};
      case 2:
        return {x * y, xv * yv};
      case 3:
        return {Min(x, y), std::min(xv, yv)};
      case 4:
        return {Max(x, y), std::max(xv, yv)};
      default: {
        // The divisor must not be zero for any value: of one sign.
        if (LowerBound(y) <= 0 && UpperBound(y) >= 0) return {x, xv};
        int64_t q = xv / yv - (xv % yv != 0 && (xv < 0) != (yv < 0));
        if (Pick(0, 1)) return {FloorDiv(x, y), q};
        return {Mod(x, y), xv - q * yv};
      }
    }
  }

  absl::StatusOr<int64_t> Value(std::string_view name) const { return values_.at(std::string(name)); }

 private:
  std::mt19937_64 random_;
  std::vector<Dim> symbols_;
  std::map<std::string, int64_t> values_;
};

TEST(DimRandom, SimplificationKeepsTheValue) {
  DimTable table;
  Generator g(table, 20261121);
  for (int round = 0; round < 4000; ++round) {
    g.Assign();
    auto [x, xv] = g.Make(4);
    auto [y, yv] = g.Make(4);
    auto value_of = [&](std::string_view name) { return g.Value(name); };
    ASSERT_EQ(Evaluate(x, value_of).value(), xv) << x << " round " << round;
    EXPECT_LE(LowerBound(x), xv) << x;
    EXPECT_GE(UpperBound(x), xv) << x;
    if (Equal(x, y) != Ternary::kUnknown) {
      EXPECT_EQ(Equal(x, y) == Ternary::kYes, xv == yv) << x << " = " << y;
    }
    if (Less(x, y) != Ternary::kUnknown) {
      EXPECT_EQ(Less(x, y) == Ternary::kYes, xv < yv) << x << " < " << y;
    }
    if (yv != 0 && Divides(y, x) != Ternary::kUnknown) {
      EXPECT_EQ(Divides(y, x) == Ternary::kYes, xv % yv == 0) << y << " | " << x;
    }
    EXPECT_EQ(table.Parse(x.ToString()).value(), x) << x;
  }
}

TEST(DimThreads, InterningIsShared) {
  DimTable table;
  std::vector<Dim> results(8);
  std::vector<std::thread> threads;
  for (int k = 0; k < 8; ++k) {
    threads.emplace_back([&, k] {
      Dim sum = 0;
      for (int i = 0; i < 200; ++i) {
        Dim s = table.Symbol("s" + std::to_string(i % 10));
        sum = sum + FloorDiv(s * s + i, 7);
      }
      results[k] = sum;
    });
  }
  for (std::thread& t : threads) t.join();
  for (Dim d : results) EXPECT_EQ(d, results[0]);
}

}  // namespace
}  // namespace tenon
