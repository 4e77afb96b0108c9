// JSON: what is read is written again, what is none is refused, and no value is taken for another.
#include "hlo/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tenon {
namespace {

std::string Again(std::string_view text) {
  const std::optional<Json> json = Json::Parse(text);
  return json.has_value() ? json->dump() : "none";
}

TEST(Json, IsWrittenAsItWasRead) {
  for (const char* text : {"null", "true", "[]", "{}", "[1,-2,18446744073709551615,0.5,1e+300]", R"({"b":1,"a":[{"c":"x"}]})",
                           R"("quote \" backslash \\ newline \n tab \t bell \u0007 é 𝄞")", "-9223372036854775808"}) {
    EXPECT_EQ(Again(text), text);
  }
  EXPECT_EQ(Again(" { \"a\" : [ 1 , 2.0 ] } "), R"({"a":[1,2.0]})");
  EXPECT_EQ(Again(R"("\u00e9\ud834\udd1e\/")"), "\"é𝄞/\"");
  EXPECT_EQ(Again("100000000000000000000"), "1e+20") << "beyond 64 bits";
  EXPECT_EQ(Again(R"({"a":1,"a":2})"), R"({"a":2})") << "the last one counts";
}

TEST(Json, RefusesWhatIsNone) {
  for (const char* text : {"", "{", "[1,]", "{\"a\"}", "{\"a\":1,}", "01", "1.", ".5", "+1", "-", "1e", "nul", "tru", "\"a", "\"\n\"",
                           "\"\\x\"", "\"\\ud834\"", "\"\xff\"", "\"\xc0\xaf\"", "\"\xed\xa0\x80\"", "1 2", "NaN", "1e999", "{1:2}"}) {
    EXPECT_EQ(Again(text), "none") << text;
  }
  EXPECT_EQ(Again(std::string(100000, '[')), "none") << "too deep";
  const std::string deep(Json::kMaxDepth, '[');
  EXPECT_NE(Again(deep + std::string(Json::kMaxDepth, ']')), "none");
}

TEST(Json, ListsOfPairsAreObjects) {
  EXPECT_EQ(Json({{"a", 1}, {"b", {1, 2}}}).dump(), R"({"a":1,"b":[1,2]})");
  EXPECT_EQ(Json({{1, 2}, {3, 4}}).dump(), "[[1,2],[3,4]]");
  Json json;
  json["list"].push_back({"x", 0.25});
  json["list"].push_back(std::vector<int64_t>{7});
  EXPECT_EQ(json.dump(), R"({"list":[["x",0.25],[7]]})");
}

TEST(Json, ForeignBytesAndNumbersStayJson) {
  EXPECT_EQ(Json(std::string("a\xff\xe2\x82z")).dump(), "\"a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz\"");
  EXPECT_EQ(Json({std::nan(""), std::numeric_limits<double>::infinity(), 1.0}).dump(), "[null,null,1.0]");
}

TEST(Json, TypesAndRangesAreChecked) {
  const Json json = *Json::Parse(R"({"n":300,"x":1.5,"s":"t","l":[1,2],"big":18446744073709551615})");
  EXPECT_EQ(json["n"].get<int>(), 300);
  EXPECT_EQ(json["l"].get<std::vector<int64_t>>(), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(json["big"].get<uint64_t>(), UINT64_MAX);
  EXPECT_EQ(json["n"].get<double>(), 300);
  EXPECT_EQ(json.value("none", 3), 3);
  EXPECT_EQ(json.value("s", "u"), "t");
  EXPECT_THROW(json["n"].get<int8_t>(), JsonError);
  EXPECT_THROW(json["big"].get<int64_t>(), JsonError);
  EXPECT_THROW(json["x"].get<int>(), JsonError);
  EXPECT_THROW(json["s"].get<bool>(), JsonError);
  EXPECT_THROW(json["s"].get<double>(), JsonError);
  EXPECT_THROW(json["n"].get<std::string>(), JsonError);
  EXPECT_THROW(json["l"].get<std::vector<std::string>>(), JsonError);
  EXPECT_THROW(json["missing"], JsonError);
  EXPECT_FALSE(json["n"].contains("a"));
  EXPECT_TRUE(json["n"].items().empty() && json["s"].elements().empty());
  Json number = 1;
  EXPECT_THROW(number["a"] = 1, JsonError);
  EXPECT_THROW(number.push_back(1), JsonError);
}

}  // namespace
}  // namespace tenon
