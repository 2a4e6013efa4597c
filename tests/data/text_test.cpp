// Tokens and windows of texts: exact contents, both levels, what is refused.
#include "data/text.h"

#include "data/loader.h"
#include "ops/ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <set>

namespace weft {
namespace {

using data::Tokenizer;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<int64_t> ints(const Tensor& t) {
  return to(t, i64).to_vector<int64_t>();
}

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

Tensor counting(int64_t count) {
  return to(arange(count), i32);
}

TEST(Tokenizer, BytesTakeAnything) {
  const std::string text("a\0\xff", 3);
  const Tokenizer bytes;
  EXPECT_EQ(bytes.vocabulary(), 256);
  EXPECT_THAT(ints(bytes.encode(text, "text")), ElementsAre(97, 0, 255));
  EXPECT_EQ(bytes.decode(255), "\xff");
  EXPECT_EQ(bytes.description(), "");
  EXPECT_EQ(Tokenizer::described(""), bytes);
}

TEST(Tokenizer, CharactersAreSortedAndComeBack) {
  const std::string text = "zażółć €😀a";
  const Tokenizer characters = Tokenizer::characters_of(text, "text");
  EXPECT_EQ(characters.description(), " azóćłż€😀");
  EXPECT_EQ(characters.vocabulary(), 9);
  const std::vector<int64_t> tokens = ints(characters.encode(text, "text"));
  EXPECT_THAT(tokens, ElementsAre(2, 1, 6, 3, 5, 4, 0, 7, 8, 1));
  std::string back;
  for (const int64_t token : tokens)
    back += characters.decode(token);
  EXPECT_EQ(back, text);
  EXPECT_EQ(Tokenizer::described(characters.description()), characters);
}

TEST(Tokenizer, NamesWhereTheTextIsNotUtf8) {
  // A lone continuation, a cut end, an overlong form, a surrogate, a point past the last, 0xff.
  for (const char* bad : {"ab\x80", "ab\xe2\x82", "ab\xc1\x81", "ab\xe0\x80\x80", "ab\xed\xa0\x80",
                          "ab\xf4\x90\x80\x80", "ab\xff"}) {
    EXPECT_THAT(message_of([&] { Tokenizer::characters_of(bad, "novel.txt"); }),
                HasSubstr("[text] expected UTF-8 in novel.txt, got other bytes at 2"));
  }
  EXPECT_NO_THROW(Tokenizer::characters_of("\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf", "edges"));
}

TEST(Tokenizer, RefusesWhatItHasNoNumberFor) {
  const Tokenizer characters = Tokenizer::characters_of("abc", "text");
  EXPECT_THAT(message_of([&] { characters.encode("abéc", "prompt"); }),
              HasSubstr("expected characters of the vocabulary in prompt, got 'é' as character 2"));
  EXPECT_THROW(characters.decode(3), Error);
  EXPECT_THROW(characters.decode(-1), Error);
  EXPECT_THROW(Tokenizer::described("ba"), Error);
  EXPECT_THROW(Tokenizer::described("aa"), Error);
  EXPECT_THROW(Tokenizer::characters_of("", "text"), Error);
  EXPECT_THROW(data::text_level_from_name("words"), Error);
}

TEST(ReadText, NamesThePath) {
  const std::string path = testing::TempDir() + "/weft_text_test.txt";
  std::ofstream(path) << "two\nlines\n";
  EXPECT_EQ(data::read_text(path), "two\nlines\n");
  std::ofstream(path, std::ios::trunc).flush();
  EXPECT_THAT(message_of([&] { data::read_text(path); }), HasSubstr("empty file " + path));
  std::remove(path.c_str());
  EXPECT_THAT(message_of([&] { data::read_text(path); }), HasSubstr(path));
  EXPECT_THAT(message_of([&] { data::read_text(testing::TempDir()); }), HasSubstr("regular file"));
}

TEST(TextWindows, PredictEveryTokenOnce) {
  const data::TextWindows windows(counting(11), 4);  // ten targets: 4, 4, 2
  ASSERT_EQ(windows.size(), 3);
  EXPECT_EQ(windows.targets(), 10);
  const std::vector<int64_t> order = {2, 0};
  const data::Batch batch = windows.gather(order, 3, {});
  EXPECT_EQ(batch.count, 2);
  EXPECT_EQ(batch.inputs.dtype(), i64);
  constexpr int64_t none = data::kNoTarget;
  EXPECT_THAT(ints(batch.inputs), ElementsAre(8, 9, 0, 0, 0, 1, 2, 3, 0, 0, 0, 0));
  EXPECT_THAT(ints(batch.targets),
              ElementsAre(9, 10, none, none, 1, 2, 3, 4, none, none, none, none));
  EXPECT_EQ(data::count_targets(batch.targets), 6);
}

TEST(TextWindows, ALoaderGivesEachTargetOnceAnEpoch) {
  const data::TextWindows windows(counting(1003), 8);
  data::Loader loader(windows, {.batch = 16, .seed = 3});
  std::vector<std::vector<int64_t>> firsts;
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::multiset<int64_t> seen;
    firsts.emplace_back();
    while (const auto batch = loader.next()) {
      EXPECT_EQ(batch->inputs.shape(), Shape({16, 8}));
      for (const int64_t target : ints(batch->targets)) {
        if (target != data::kNoTarget) seen.insert(target);
      }
      firsts.back().push_back(ints(batch->inputs)[0]);
    }
    ASSERT_EQ(seen.size(), 1002u);
    EXPECT_EQ(std::set<int64_t>(seen.begin(), seen.end()).size(), 1002u);
    EXPECT_EQ(*seen.begin(), 1);
  }
  EXPECT_NE(firsts[0], firsts[1]);
}

TEST(TextWindows, IdentityIsThatOfTheTokens) {
  const Tokenizer bytes;
  const auto identity = [&](const char* text) {
    return data::TextWindows(bytes.encode(text, "text"), 2).identity();
  };
  EXPECT_EQ(identity("abcd"), identity("abcd"));
  EXPECT_NE(identity("abcd"), identity("abdc"));
}

TEST(TextWindows, Refuse) {
  EXPECT_THROW(data::TextWindows(counting(1), 4), Error);
  EXPECT_THROW(data::TextWindows(counting(8), 0), Error);
  EXPECT_THROW(data::TextWindows(arange(8), 4), Error);  // i64
  const data::TextWindows windows(counting(9), 4);
  for (const int64_t index : {-1, 2}) {
    EXPECT_THROW(windows.gather(std::vector<int64_t>{index}, 1, {}), Error);
  }
  EXPECT_THROW(windows.gather(std::vector<int64_t>{0, 1}, 1, {}), Error);
}

TEST(SplitText, CutsTheEndOff) {
  const auto [training, validation] = data::split_text(counting(10), 0.3);
  EXPECT_THAT(ints(training), ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_THAT(ints(validation), ElementsAre(7, 8, 9));
  EXPECT_THROW(data::split_text(counting(10), 0.05), Error);
  EXPECT_THROW(data::split_text(counting(10), 0), Error);
  EXPECT_THROW(data::split_text(counting(10), 1), Error);
}

}  // namespace
}  // namespace weft
