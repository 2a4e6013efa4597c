// Texts as sequences of tokens, and the windows a language model is trained on.
#pragma once

#include "data/dataset.h"

#include <string>
#include <string_view>
#include <vector>

namespace weft::data {

enum class TextLevel : uint8_t {
  bytes,       // a token is a byte: any file, vocabulary 256
  characters,  // a token is a Unicode code point among those that the text has
};

// "bytes" or "characters"; others throw.
TextLevel text_level_from_name(std::string_view name);

// How text becomes tokens and back.
class Tokenizer {
 public:
  // Bytes.
  Tokenizer() = default;
  // The code points of `text`, sorted and numbered from 0. Throws where the text is not UTF-8,
  // naming `name` and the byte.
  static Tokenizer characters_of(std::string_view text, const std::string& name);
  // What description() gave. Throws where it is neither empty nor sorted distinct code points.
  static Tokenizer described(std::string_view description);

  TextLevel level() const { return points_.empty() ? TextLevel::bytes : TextLevel::characters; }
  int64_t vocabulary() const;
  // i32 [tokens]. Throws, naming `name` and the byte, where the text is not UTF-8 or holds a code
  // point that has no number.
  Tensor encode(std::string_view text, const std::string& name) const;
  // The text of a token; expects 0 <= token < vocabulary. At byte level, perhaps a part of a
  // character.
  std::string decode(int64_t token) const;
  // Empty at byte level, else all characters in their order, as UTF-8: what belongs into a saved
  // model's metadata.
  std::string description() const;

  bool operator==(const Tokenizer&) const = default;

 private:
  std::vector<char32_t> points_;  // sorted
};

// The whole file. Throws an Error naming the path where it cannot be read or is empty.
std::string read_text(const std::string& path);

// Token sequences cut into samples. Sample i has the `context` tokens from i * context on as its
// input and, as targets, what follows each: every token but the first is predicted exactly once an
// epoch. The last sample may be short: its inputs end in zeros, its targets in kNoTarget. Batches
// are i64 [rows, context], both.
class TextWindows final : public Dataset {
 public:
  // tokens: i32 [at least 2].
  TextWindows(Tensor tokens, int64_t context);

  int64_t size() const override;
  int64_t targets_of(int64_t index) const override;
  Shape sample_shape() const override { return {context_}; }
  std::string identity() const override;
  Batch gather(std::span<const int64_t> indices, int64_t rows, const EpochKey& key) const override;

  int64_t context() const { return context_; }
  // Targets in all samples.
  int64_t targets() const { return tokens_.size(0) - 1; }

 private:
  Tensor tokens_;
  int64_t context_;
};

// The first part is for training, the `fraction` at the end for validation, both views of
// `tokens`. Throws where one of them is too short to be a sample.
struct TextSplit {
  Tensor training;
  Tensor validation;
};
TextSplit split_text(const Tensor& tokens, double fraction);

// How many targets of a batch there are to predict: those that are not kNoTarget.
int64_t count_targets(const Tensor& targets);

}  // namespace weft::data
