#include "apps/gpt/train.h"

#include "apps/common/optimizers.h"
#include "apps/common/sample.h"
#include "apps/common/training.h"
#include "data/text.h"
#include "weft.h"

#include <algorithm>
#include <cstdio>
#include <memory>

namespace weft::app {
namespace {

constexpr const char* kCharacters = "tokenizer.characters";  // in the metadata of exported weights

// Bytes; or the characters of the weights to begin with, if they name any, else those of the text.
data::Tokenizer make_tokenizer(const GptAppOptions& o, const std::string& text) {
  std::string described;
  if (!o.common.init.empty()) {
    for (const auto& [name, value] : load_safetensors_metadata(o.common.init)) {
      if (name == kCharacters) described = value;
    }
  }
  if (data::text_level_from_name(o.level) == data::TextLevel::bytes) {
    WEFT_CHECK(described.empty(), "gpt", "expected --level characters, for which ", o.common.init,
               " was trained, got bytes");
    return {};
  }
  return described.empty() ? data::Tokenizer::characters_of(text, o.common.data)
                           : data::Tokenizer::described(described);
}

nn::models::GptOptions with_vocabulary(nn::models::GptOptions options, int64_t vocabulary) {
  options.vocabulary = vocabulary;
  return options;
}

// Without memory for its parameters: no rank may be able to hold them all.
Ref<nn::models::Gpt> make_model(const nn::models::GptOptions& options) {
  const nn::Deferred deferred;
  return make_ref<nn::models::Gpt>(options);
}

class GptTask final : public Task {
 public:
  explicit GptTask(const GptAppOptions& options)
      : options_(options),
        common_(options.common),
        text_(data::read_text(common_.data)),
        tokenizer_(make_tokenizer(options, text_)),
        tokens_(tokenizer_.encode(text_, common_.data)),
        split_(data::split_text(tokens_, options.validation)),
        train_(split_.training, options.gpt.model.context),
        test_(split_.validation, options.gpt.model.context),
        model_(make_model(with_vocabulary(options.gpt.model, tokenizer_.vocabulary()))) {}

  nn::Module& model() override { return *model_; }
  const data::Dataset& training() const override { return train_; }
  const data::Dataset& test() const override { return test_; }
  int64_t evaluation_batch() const override { return 32; }
  double clip_norm() const override { return options_.clip; }
  std::vector<std::string> unit_types() const override { return {"TransformerBlock"}; }

  std::string headline() const override {
    return concat({options_.level, " of ", common_.data, " (", tokens_.size(0),
                   " tokens, vocabulary ", tokenizer_.vocabulary(), ")"});
  }

  // For ids [B, T]: [B * T, vocabulary].
  Tensor logits(const Tensor& ids) override { return flatten((*model_)(ids), 0, 1); }

  Tensor loss(const Tensor& logits, const Tensor& targets) override {
    return cross_entropy(logits, flatten(targets), {.reduction = Reduction::sum});
  }

  std::unique_ptr<optim::Optimizer> make_optimizer(const optim::Parameters& parameters) override {
    return app::make_optimizer(parameters, {.name = common_.optimizer,
                                            .lr = common_.lr,
                                            .beta2 = 0.99,
                                            .weight_decay = options_.weight_decay});
  }

  optim::Schedule make_schedule(int64_t steps) const override {
    const int64_t warmup = std::min(options_.warmup, steps - 1);
    const int64_t rest = steps - warmup;
    const optim::Schedule after = options_.schedule == "cosine"
                                      ? optim::cosine(common_.lr, rest, common_.lr / 10)
                                      : optim::constant(common_.lr);
    if (warmup <= 0) return after;
    return optim::sequential({{optim::linear_warmup(common_.lr, warmup), warmup}, {after, rest}});
  }

  std::vector<std::pair<std::string, std::string>> metadata() const override {
    if (tokenizer_.level() != data::TextLevel::characters) return {};
    return {{kCharacters, tokenizer_.description()}};
  }

  bool has_finish() const override { return options_.sample.length > 0; }

  void finish(RunDirectory& directory) override {
    const std::string written = sample();
    if (!common_.quiet) std::printf("%s\n", written.c_str());
    directory.write("sample.txt", written);
  }

  // The prompt and what the model adds to it.
  std::string sample() {
    const std::string& given = options_.sample.prompt;
    const Tensor prompt =
        given.empty() ? narrow(tokens_, 0, 0, 1) : tokenizer_.encode(given, "--prompt");
    std::string text;
    for (const int64_t token : to(prompt, i64).to_vector<int64_t>())
      text += tokenizer_.decode(token);
    return text + write_sample(*model_, tokenizer_, prompt, options_.sample,
                               static_cast<uint64_t>(common_.seed));
  }

 private:
  const GptAppOptions& options_;
  const CommonFlags& common_;
  std::string text_;
  data::Tokenizer tokenizer_;
  Tensor tokens_;
  data::TextSplit split_;
  data::TextWindows train_;
  data::TextWindows test_;
  Ref<nn::models::Gpt> model_;
};

}  // namespace

void train_gpt(const GptAppOptions& options, dist::Session& session) {
  GptTask task(options);
  run_training(task, options.common, session, {.app = "gpt", .rate = "sequences/s"});
}

void sample_gpt(const GptAppOptions& options, dist::Communicator& comm) {
  if (comm.rank() != 0) return;
  GptTask task(options);
  if (!options.common.init.empty()) task.model().load(options.common.init);
  nn::materialise(task.model());
  task.model().to(dtype_from_name(options.common.dtype));
  std::printf("%s\n", task.sample().c_str());
}

}  // namespace weft::app
