#include "apps/gpt/train.h"

#include "apps/common/progress.h"
#include "apps/common/run_directory.h"
#include "apps/common/sample.h"
#include "apps/common/step_clock.h"
#include "data/loader.h"
#include "data/text.h"
#include "weft.h"

#include <cstdio>
#include <memory>

namespace weft::app {
namespace {

constexpr int64_t kEvaluationBatch = 32;
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

std::unique_ptr<optim::Optimizer> make_optimizer(const GptAppOptions& o, nn::Module& model) {
  if (o.common.optimizer == "sgd") {
    return std::make_unique<optim::Sgd>(
        model.parameters(),
        optim::SgdOptions{.lr = o.common.lr, .momentum = 0.9, .weight_decay = o.weight_decay});
  }
  const optim::AdamOptions adam{.lr = o.common.lr, .beta2 = 0.99, .weight_decay = o.weight_decay};
  if (o.common.optimizer == "adam") return std::make_unique<optim::Adam>(model.parameters(), adam);
  return std::make_unique<optim::AdamW>(model.parameters(), adam);
}

struct Evaluation {
  double loss = 0;      // nats a token
  double accuracy = 0;  // share of tokens that the model finds likeliest
};

class GptRun {
 public:
  explicit GptRun(const GptAppOptions& options)
      : options_(options),
        common_(options.common),
        text_(data::read_text(common_.data)),
        tokenizer_(make_tokenizer(options, text_)),
        tokens_(tokenizer_.encode(text_, common_.data)),
        split_(data::split_text(tokens_, options.validation)),
        train_(split_.training, options.gpt.model.context),
        test_(split_.validation, options.gpt.model.context),
        model_(with_vocabulary(options.gpt.model, tokenizer_.vocabulary())),
        loader_(train_,
                {.batch = common_.global_batch, .seed = static_cast<uint64_t>(common_.seed)}) {
    model_.to(dtype_from_name(common_.dtype));
    if (!common_.init.empty()) model_.load(common_.init);
    optimizer_ = make_optimizer(options_, model_);
    const int64_t by_epochs = common_.epochs * loader_.batches();
    total_steps_ = common_.steps > 0 ? std::min(common_.steps, by_epochs) : by_epochs;
    schedule_ = make_schedule();
  }

  void run() {
    if (options_.no_train) {
      std::printf("%s\n", sample().c_str());
      return;
    }
    RunDirectory directory(common_.run_dir);
    Progress progress(common_.epochs, loader_.batches(), common_.quiet, "sequences/s");
    const double start = seconds_now();
    progress.line(
        concat({"gpt: ", model_.parameter_count(), " parameters, ", options_.level, " of ",
                common_.data, " (", tokens_.size(0), " tokens, vocabulary ",
                tokenizer_.vocabulary(), "), ", common_.dtype, ", batch ", common_.global_batch,
                ", ", total_steps_, " steps, ", common_.threads, " threads"}));
    Evaluation evaluation;
    double epoch_loss = 0;
    for (int64_t epoch = 0; step_ < total_steps_; ++epoch) {
      epoch_loss = train_epoch(epoch, start, directory, progress);
      evaluation = evaluate();
      char text[160];
      std::snprintf(
          text, sizeof text,
          "epoch %lld: train loss %.4f, test loss %.4f, test accuracy %.4f, %.1f sequences/s",
          static_cast<long long>(epoch + 1), epoch_loss, evaluation.loss, evaluation.accuracy,
          static_cast<double>(trained_) / training_seconds_);
      progress.line(text);
      directory.log(text);
    }
    if (!common_.export_to.empty()) save();
    if (options_.sample.length > 0) {
      const std::string written = sample();
      progress.line(written);
      directory.write("sample.txt", written);
    }
    directory.result({.app = "gpt",
                      .steps = step_,
                      .epochs = common_.epochs,
                      .train_loss = epoch_loss,
                      .test_loss = evaluation.loss,
                      .test_accuracy = evaluation.accuracy,
                      .images_per_second = static_cast<double>(trained_) / training_seconds_,
                      .wall_seconds = seconds_now() - start},
                     common_, clock_);
    progress.line("result: " + common_.run_dir + "/result.json");
  }

 private:
  optim::Schedule make_schedule() const {
    const int64_t warmup = std::min(options_.warmup, total_steps_ - 1);
    const int64_t rest = total_steps_ - warmup;
    const optim::Schedule after = options_.schedule == "cosine"
                                      ? optim::cosine(common_.lr, rest, common_.lr / 10)
                                      : optim::constant(common_.lr);
    if (warmup <= 0) return after;
    return optim::sequential({{optim::linear_warmup(common_.lr, warmup), warmup}, {after, rest}});
  }

  // Returns the mean loss over the epoch's steps.
  double train_epoch(int64_t epoch, double start, RunDirectory& directory, Progress& progress) {
    model_.train();
    double sum = 0;
    int64_t step_in_epoch = 0;
    const double began = seconds_now();
    clock_.skip();
    while (step_ < total_steps_) {
      const auto batch = loader_.next();
      clock_.mark(Phase::data);
      if (!batch) break;
      begin_random_step(static_cast<uint64_t>(step_));
      const double lr = schedule_(step_);
      optimizer_->set_lr(lr);
      const float loss = train_step(*batch);
      ++step_;
      ++step_in_epoch;
      sum += static_cast<double>(loss);
      trained_ += batch->count;
      const double now = seconds_now();
      const double rate = static_cast<double>(trained_) / (training_seconds_ + now - began);
      directory.metrics({step_, epoch, loss, lr, rate, now - start});
      progress.step(epoch, step_in_epoch, static_cast<double>(loss), rate);
    }
    training_seconds_ += seconds_now() - began;
    return sum / static_cast<double>(std::max<int64_t>(step_in_epoch, 1));
  }

  // For ids [B, T]: [B * T, vocabulary].
  Tensor logits_of(const Tensor& ids) { return flatten(model_(ids), 0, 1); }

  // One step over a global batch, cut into micro-batches whose gradients add up. The loss is the
  // mean over the tokens to predict in the whole batch, of which the last window has fewer.
  float train_step(const data::Batch& batch) {
    optimizer_->zero_grad();
    const int64_t rows = common_.global_batch / common_.accumulate;
    const auto tokens = static_cast<double>(data::count_targets(batch.targets));
    double total = 0;
    for (int64_t first = 0; first < batch.count; first += rows) {
      const Tensor ids = narrow(batch.inputs, 0, first, rows);
      const Tensor targets = narrow(batch.targets, 0, first, rows);
      const Tensor loss =
          cross_entropy(logits_of(ids), flatten(targets), {.reduction = Reduction::sum}) *
          (1.0 / tokens);
      clock_.mark(Phase::forward);
      backward(loss);
      total += loss.item();
      clock_.mark(Phase::backward);
    }
    if (options_.clip > 0)
      optim::clip_grad_norm(model_.parameters(), options_.clip, {.error_if_nonfinite = true});
    optimizer_->step();
    clock_.mark(Phase::optimizer);
    return static_cast<float>(total);
  }

  Evaluation evaluate() {
    const NoGrad no_grad;
    model_.eval();
    data::Loader loader(test_,
                        {.batch = kEvaluationBatch, .shuffle = false, .tail = data::Tail::shrink});
    Evaluation sum;
    while (const auto batch = loader.next()) {
      const Tensor logits = logits_of(batch->inputs);
      const Tensor targets = flatten(batch->targets);
      sum.loss += cross_entropy(logits, targets, {.reduction = Reduction::sum}).item();
      sum.accuracy += weft::sum(eq(argmax(logits, 1), targets)).item();
    }
    const auto tokens = static_cast<double>(test_.targets());
    return {sum.loss / tokens, sum.accuracy / tokens};
  }

  void save() const {
    std::vector<std::pair<std::string, std::string>> metadata;
    if (tokenizer_.level() == data::TextLevel::characters)
      metadata.emplace_back(kCharacters, tokenizer_.description());
    model_.save(common_.export_to, metadata);
  }

  // The prompt and what the model adds to it.
  std::string sample() {
    const std::string& given = options_.sample.prompt;
    const Tensor prompt =
        given.empty() ? narrow(tokens_, 0, 0, 1) : tokenizer_.encode(given, "--prompt");
    std::string text;
    for (const int64_t token : to(prompt, i64).to_vector<int64_t>())
      text += tokenizer_.decode(token);
    return text + write_sample(model_, tokenizer_, prompt, options_.sample,
                               static_cast<uint64_t>(common_.seed));
  }

  GptAppOptions options_;
  CommonFlags common_;
  std::string text_;
  data::Tokenizer tokenizer_;
  Tensor tokens_;
  data::TextSplit split_;
  data::TextWindows train_;
  data::TextWindows test_;
  nn::models::Gpt model_;
  data::Loader loader_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  optim::Schedule schedule_;
  StepClock clock_;
  int64_t total_steps_ = 0;
  int64_t step_ = 0;
  int64_t trained_ = 0;
  double training_seconds_ = 0;
};

}  // namespace

void train_gpt(const GptAppOptions& options) {
  GptRun(options).run();
}

}  // namespace weft::app
