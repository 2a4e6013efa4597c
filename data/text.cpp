#include "data/text.h"

#include "data/detail/batches.h"
#include "data/detail/file.h"
#include "data/detail/utf8.h"
#include "ops/view.h"

#include <algorithm>
#include <cmath>

namespace weft::data {

TextLevel text_level_from_name(std::string_view name) {
  if (name == "bytes") return TextLevel::bytes;
  if (name == "characters") return TextLevel::characters;
  throw_error("text", {"expected the level bytes or characters, got ", name});
}

Tokenizer Tokenizer::characters_of(std::string_view text, const std::string& name) {
  Tokenizer made;
  made.points_ = detail::decode_utf8(text, name);
  WEFT_CHECK(!made.points_.empty(), "text", "expected at least one character in ", name,
             ", got none");
  std::sort(made.points_.begin(), made.points_.end());
  made.points_.erase(std::unique(made.points_.begin(), made.points_.end()), made.points_.end());
  return made;
}

Tokenizer Tokenizer::described(std::string_view description) {
  Tokenizer made;
  made.points_ = detail::decode_utf8(description, "the description of a vocabulary");
  const bool rising = std::adjacent_find(made.points_.begin(), made.points_.end(),
                                         std::greater_equal<>()) == made.points_.end();
  WEFT_CHECK(rising, "text", "expected a vocabulary of distinct characters in rising order, got '",
             description, "'");
  return made;
}

int64_t Tokenizer::vocabulary() const {
  return points_.empty() ? 256 : static_cast<int64_t>(points_.size());
}

Tensor Tokenizer::encode(std::string_view text, const std::string& name) const {
  const CategoryScope category(Category::data);
  if (level() == TextLevel::bytes) {
    const Tensor tokens = empty({static_cast<int64_t>(text.size())}, {.dtype = i32});
    std::transform(text.begin(), text.end(), tokens.data<int32_t>(),
                   [](char c) { return static_cast<int32_t>(static_cast<unsigned char>(c)); });
    return tokens;
  }
  const std::vector<char32_t> points = detail::decode_utf8(text, name);
  const Tensor tokens = empty({static_cast<int64_t>(points.size())}, {.dtype = i32});
  for (size_t i = 0; i < points.size(); ++i) {
    const auto found = std::lower_bound(points_.begin(), points_.end(), points[i]);
    WEFT_CHECK(found != points_.end() && *found == points[i], "text",
               "expected characters of the vocabulary in ", name, ", got '",
               detail::encode_utf8(points[i]), "' as character ", i);
    tokens.data<int32_t>()[i] = static_cast<int32_t>(found - points_.begin());
  }
  return tokens;
}

std::string Tokenizer::decode(int64_t token) const {
  WEFT_CHECK(token >= 0 && token < vocabulary(), "text", "expected a token in [0, ", vocabulary(),
             "), got ", token);
  if (level() == TextLevel::bytes) return {static_cast<char>(token)};
  return detail::encode_utf8(points_[static_cast<size_t>(token)]);
}

std::string Tokenizer::description() const {
  std::string text;
  for (const char32_t point : points_)
    text += detail::encode_utf8(point);
  return text;
}

std::string read_text(const std::string& path) {
  const std::vector<std::byte> bytes = detail::read_file("text", path);
  WEFT_CHECK(!bytes.empty(), "text", "expected a text, got the empty file ", path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TextWindows::TextWindows(Tensor tokens, int64_t context)
    : tokens_(std::move(tokens)), context_(context) {
  WEFT_CHECK(context_ >= 1, "text", "expected a context of at least 1, got ", context_);
  WEFT_CHECK(tokens_.defined() && tokens_.dtype() == i32 && tokens_.dims() == 1 &&
                 tokens_.is_contiguous() && tokens_.size(0) >= 2,
             "text", "expected at least 2 tokens of i32 in a row, got ", tokens_.dtype(), " ",
             tokens_.shape());
}

int64_t TextWindows::size() const {
  return (targets() + context_ - 1) / context_;
}

int64_t TextWindows::targets_of(int64_t index) const {
  return std::min(context_, targets() - index * context_);
}

std::string TextWindows::identity() const {
  return detail::identity_of("tokens", tokens_.data<int32_t>(),
                             static_cast<size_t>(tokens_.size(0)) * sizeof(int32_t));
}

Batch TextWindows::gather(std::span<const int64_t> indices, int64_t rows, const EpochKey&) const {
  const auto count = static_cast<int64_t>(indices.size());
  WEFT_CHECK(count <= rows, "gather", "expected at most ", rows, " samples for ", rows,
             " rows, got ", count);
  for (const int64_t index : indices) {
    WEFT_CHECK(index >= 0 && index < size(), "gather", "expected samples in [0, ", size(),
               "), got ", index);
  }
  const CategoryScope category(Category::data);
  Batch batch{empty({rows, context_}, {.dtype = i64}), empty({rows, context_}, {.dtype = i64}),
              count};
  const int32_t* tokens = tokens_.data<int32_t>();
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t first = row < count ? indices[static_cast<size_t>(row)] * context_ : 0;
    const int64_t length = row < count ? std::min(context_, targets() - first) : 0;
    int64_t* input = batch.inputs.data<int64_t>() + row * context_;
    int64_t* target = batch.targets.data<int64_t>() + row * context_;
    std::copy_n(tokens + first, length, input);
    std::copy_n(tokens + first + 1, length, target);
    std::fill_n(input + length, context_ - length, 0);
    std::fill_n(target + length, context_ - length, kNoTarget);
  }
  return batch;
}

TextSplit split_text(const Tensor& tokens, double fraction) {
  WEFT_CHECK(fraction > 0 && fraction < 1, "text", "expected a fraction between 0 and 1, got ",
             fraction);
  WEFT_CHECK(tokens.dims() == 1, "text", "expected tokens in a row, got ", tokens.shape());
  const int64_t size = tokens.size(0);
  const auto kept = static_cast<int64_t>(std::llround(static_cast<double>(size) * (1 - fraction)));
  WEFT_CHECK(kept >= 2 && size - kept >= 2, "text",
             "expected a text of which both parts have at least 2 tokens, got ", size,
             " cut after ", kept);
  return {narrow(tokens, 0, 0, kept), narrow(tokens, 0, kept, size - kept)};
}

int64_t count_targets(const Tensor& targets) {
  WEFT_CHECK(targets.defined() && targets.dtype() == i64 && targets.is_contiguous(), "text",
             "expected contiguous targets of i64, got ", targets.dtype(), " ", targets.shape());
  const int64_t* first = targets.data<int64_t>();
  return targets.numel() - std::count(first, first + targets.numel(), kNoTarget);
}

}  // namespace weft::data
