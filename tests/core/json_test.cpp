#include "core/json.h"

#include "tests/support/tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

namespace weft {
namespace {

void expect_error(const std::function<void()>& f, const std::string& text) {
  EXPECT_THAT(test::error_of(f), testing::HasSubstr(text));
}

TEST(Json, WritesWhatItHolds) {
  Json json = Json::object({{"b", true}, {"a", Json::array({1, -2, 2.5, nullptr, "x\n\"ł"})}});
  json["list"] = std::vector<uint32_t>{7, 4294967295U};
  json["one"]["two"] = Json::object();
  EXPECT_EQ(json.dump(),
            R"({"b":true,"a":[1,-2,2.5,null,"x\n\"ł"],"list":[7,4294967295],"one":{"two":{}}})");
  EXPECT_EQ(Json::array({1}).dump(2), "[\n  1\n]");
}

TEST(Json, ReadsWhatItWrites) {
  for (const double value : {0.1, -0.0, 1e300, 5e-324, 1.0}) {
    const Json again = Json::parse(Json(value).dump());
    EXPECT_EQ(again.kind(), Json::Kind::real) << value;
    EXPECT_EQ(again.get<double>(), value);
  }
  for (const int64_t value : {INT64_MIN, int64_t{-1}, int64_t{0}, INT64_MAX})
    EXPECT_EQ(Json::parse(Json(value).dump()).get<int64_t>(), value);
  EXPECT_EQ(Json::parse(Json(UINT64_MAX).dump()).get<uint64_t>(), UINT64_MAX);
  EXPECT_TRUE(Json(std::numeric_limits<double>::infinity()).dump() == "null");
  const std::string text = R"({"z":[[],{},"é",false],"a":{"b":[1,[2,[3]]]}})";
  EXPECT_EQ(Json::parse(text).dump(), text);
}

TEST(Json, AskedForAnotherKindSaysWhich) {
  const Json json = Json::parse(R"({"n":-1,"big":18446744073709551615,"r":1.5,"l":[1,300]})");
  EXPECT_EQ(json.at("l").get<std::vector<int>>(), (std::vector<int>{1, 300}));
  EXPECT_EQ(json.at("n").get<double>(), -1);
  EXPECT_EQ(json.at("big").get<double>(), 18446744073709551616.0);
  expect_error([&] { json.at("n").get<std::string>(); }, "expected a text, got an integer");
  expect_error([&] { json.at("r").get<int>(); }, "expected an integer, got a real");
  expect_error([&] { json.at("n").get<uint32_t>(); },
               "expected an integer of 0 to 4294967295, got -1");
  expect_error([&] { json.at("big").get<int64_t>(); }, "got 18446744073709551615");
  expect_error([&] { json.at("l").get<std::vector<int8_t>>(); }, "of -128 to 127, got 300");
  expect_error([&] { json.at("none"); }, "expected a member 'none', got none");
  expect_error([&] { json.at("l").at(2); }, "more than 2 elements, got 2");
  expect_error([&] { json.at("l").at("x"); }, "expected an object, got an array");
  expect_error([&] { json.elements(); }, "expected an array, got an object");
  EXPECT_EQ(json.at("l").find("x"), nullptr);
}

TEST(Json, WhatIsNoJsonIsRefused) {
  for (const char* text : {"", "{", "[1,]", "{\"a\"}", "nul", "[1] 2", "\"\xff\"", "{'a':1}", "01"})
    EXPECT_FALSE(Json::try_parse(text).has_value()) << text;
  expect_error([] { Json::parse("[1,2"); }, "expected JSON in UTF-8, got damage at byte 5");
  expect_error([] { Json::parse(R"({"a":{"b":1,"c":2,"b":3}})"); }, "got 'b' twice");
  const std::string deep(100000, '[');
  expect_error([&] { Json::parse(deep); }, "nested at most 256 deep");
  expect_error([] { Json("\xff").dump(); }, "texts in UTF-8");
}

TEST(Json, EqualByValue) {
  EXPECT_EQ(Json(1), Json(1.0));
  EXPECT_EQ(Json::parse(R"({"a":1,"b":[2]})"), Json::parse(R"({"b":[2.0],"a":1})"));
  EXPECT_FALSE(Json(1) == Json(true));
  EXPECT_FALSE(Json::parse(R"({"a":1})") == Json::parse(R"({"a":1,"b":2})"));
  EXPECT_FALSE(Json::array({1}) == Json::array({1, 2}));
  EXPECT_FALSE(Json(UINT64_MAX) == Json(-1));
}

}  // namespace
}  // namespace weft
