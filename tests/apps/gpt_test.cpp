// The gpt app: how tokens are chosen, and whole runs of the program.
#include "apps/common/sample.h"
#include "core/json.h"
#include "ops/ops.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace weft {
namespace {

using app::choose_token;

Tensor logits() {
  return from_values(std::vector<float>{0, std::log(2.0f), std::log(5.0f), std::log(2.0f)});
}

TEST(ChooseToken, FollowsTheProbabilities) {
  // Likeliest first, 5 2 2 1 of ten; equal ones by number.
  EXPECT_EQ(choose_token(logits(), {}, 0.0), 2);
  EXPECT_EQ(choose_token(logits(), {}, 0.49), 2);
  EXPECT_EQ(choose_token(logits(), {}, 0.51), 1);
  EXPECT_EQ(choose_token(logits(), {}, 0.71), 3);
  EXPECT_EQ(choose_token(logits(), {}, 0.91), 0);
  EXPECT_EQ(choose_token(logits(), {}, std::nextafter(1.0, 0.0)), 0);
}

TEST(ChooseToken, TemperatureAndTopK) {
  EXPECT_EQ(choose_token(logits(), {.temperature = 0}, 0.999), 2);
  EXPECT_EQ(choose_token(logits(), {.top_k = 1}, 0.999), 2);
  EXPECT_EQ(choose_token(logits(), {.top_k = 2}, 0.999), 1);
  EXPECT_EQ(choose_token(logits(), {.top_k = 9}, 0.999), 0);
  // At half the temperature probabilities are squared: 25 4 4 1 of 34.
  EXPECT_EQ(choose_token(logits(), {.temperature = 0.5}, 24.9 / 34), 2);
  EXPECT_EQ(choose_token(logits(), {.temperature = 0.5}, 25.1 / 34), 1);
  EXPECT_THROW(choose_token(full({3}, NAN), {}, 0.5), Error);
}

// Runs of the program on a text of its own, in a folder that goes with the test.
class GptProgram : public testing::Test {
 protected:
  GptProgram() {
    std::filesystem::create_directories(folder_);
    std::ofstream text(folder_ + "/text.txt");
    for (int i = 0; i < 60; ++i)
      text << "łatwy tekst, " << i % 7 << "\n";
  }
  ~GptProgram() override { std::filesystem::remove_all(folder_); }

  // The exit code; what the program prints is in output().
  int run(const std::string& flags) const {
    const std::string command = std::string(WEFT_BIN_DIR) + "/gpt --data " + folder_ +
                                "/text.txt --run-dir " + folder_ +
                                "/run --layers 1 --width 16 --heads 2 --context 16 --threads 1 " +
                                flags + " >" + folder_ + "/out 2>&1";
    const int status = std::system(command.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string file(const std::string& name) const {
    std::ifstream in(folder_ + "/" + name);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }
  std::string output() const { return file("out"); }
  // loss_bits of every step.
  std::vector<std::string> losses() const {
    std::vector<std::string> bits;
    std::istringstream lines(file("run/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);)
      bits.push_back(Json::parse(line).at("loss_bits").text());
    return bits;
  }

  std::string folder_ = testing::TempDir() + "/weft_gpt_program_" + std::to_string(getpid());
};

TEST_F(GptProgram, LearnsSavesAndWrites) {
  ASSERT_EQ(run("--level characters --epochs 120 --lr 0.01 --sample 30 --prompt łatwy "
                "--temperature 0 --export " +
                folder_ + "/model.safetensors"),
            0)
      << output();
  const auto result = Json::parse(file("run/result.json"));
  EXPECT_EQ(result.at("app"), "gpt");
  EXPECT_EQ(result.at("steps"), 120 * 4);
  EXPECT_LT(result.at("final").at("test_loss").get<double>(), 0.5);
  EXPECT_GT(result.at("final").at("test_accuracy").get<double>(), 0.8);
  const std::string written = file("run/sample.txt");
  EXPECT_EQ(written.substr(0, 14), "łatwy tekst, ") << written;
  EXPECT_NE(output().find(written), std::string::npos);

  // The same weights write the same again, without training; the map of characters is in the file.
  ASSERT_EQ(run("--level characters --no-train --sample 30 --prompt łatwy --temperature 0 --init " +
                folder_ + "/model.safetensors"),
            0);
  EXPECT_EQ(output(), written + "\n");
  EXPECT_EQ(run("--no-train --init " + folder_ + "/model.safetensors"), 1);
  EXPECT_NE(output().find("expected --level characters"), std::string::npos) << output();
  EXPECT_EQ(
      run("--level characters --no-train --prompt Q --init " + folder_ + "/model.safetensors"), 1);
  EXPECT_NE(output().find("expected characters of the vocabulary in --prompt, got 'Q'"),
            std::string::npos)
      << output();
}

TEST_F(GptProgram, MicroBatchesAndShortWindowsKeepTheMean) {
  ASSERT_EQ(run("--epochs 2 --sample 0 --dropout 0"), 0) << output();
  std::vector<double> whole;
  std::istringstream lines(file("run/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);)
    whole.push_back(Json::parse(line).at("loss").get<double>());
  ASSERT_EQ(run("--epochs 2 --sample 0 --dropout 0 --accumulate 4"), 0) << output();
  std::istringstream again(file("run/metrics.jsonl"));
  size_t step = 0;
  for (std::string line; std::getline(again, line); ++step) {
    const auto loss = Json::parse(line).at("loss").get<double>();
    EXPECT_NEAR(loss, whole.at(step), 1e-4 * loss) << "step " << step;
  }
  EXPECT_EQ(step, whole.size());
}

TEST_F(GptProgram, SameSeedSameBits) {
  ASSERT_EQ(run("--epochs 1 --dropout 0.1 --seed 7 --sample 20"), 0) << output();
  const auto losses_of_one = losses();
  const std::string written = file("run/sample.txt");
  ASSERT_EQ(run("--epochs 1 --dropout 0.1 --seed 7 --sample 20 --recompute"), 0) << output();
  EXPECT_EQ(losses(), losses_of_one);
  EXPECT_EQ(file("run/sample.txt"), written);
  ASSERT_EQ(run("--epochs 1 --dropout 0.1 --seed 8 --sample 20"), 0) << output();
  EXPECT_NE(losses(), losses_of_one);
}

// Writing takes longer than ranks wait for each other, and longer than one may say nothing.
TEST_F(GptProgram, WritesForAsLongAsItTakes) {
  ASSERT_EQ(run("--steps 1 --sample 20000 --workers 2 --timeout 1 --heartbeat 1"), 0) << output();
  EXPECT_GE(file("run/sample.txt").size(), 20000U);
}

TEST_F(GptProgram, RefusesAndFailsClearly) {
  for (const char* flags :
       {"--heads 3", "--validation 1", "--no-train", "--level words", "--context 0",
        "--workers 3 --global-batch 16", "--dropout 2", "--no-train --init x --resume auto",
        "--no-train --init x --export y"}) {
    EXPECT_EQ(run(flags), 2) << flags;
  }
  std::ofstream(folder_ + "/text.txt") << "ab\xff" << std::string(100, 'c');
  EXPECT_EQ(run("--level characters"), 1);
  EXPECT_NE(output().find("got other bytes at 2"), std::string::npos) << output();
  std::ofstream(folder_ + "/text.txt") << "a";
  EXPECT_EQ(run(""), 1);
  std::ofstream(folder_ + "/text.txt").flush();
  EXPECT_EQ(run(""), 1);
  EXPECT_NE(output().find("empty file"), std::string::npos) << output();
  std::filesystem::remove(folder_ + "/text.txt");
  EXPECT_EQ(run(""), 1);
  EXPECT_NE(output().find("text.txt: No such file"), std::string::npos) << output();
}

}  // namespace
}  // namespace weft
