// Training by processes: the same bits whatever the strategy and the number of ranks, and what
// result.json says of memory and traffic.
#include "core/json.h"
#include "tests/support/runs.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace weft {
namespace {

using test::read_file;
using test::write_images;

class Training : public testing::Test {
 protected:
  Training() : folder_(testing::TempDir() + "/weft_training_" + std::to_string(getpid())) {
    std::filesystem::create_directories(folder_);
    write_images(folder_ + "/train", 90);  // the last batch is short: some shards hold no sample
    write_images(folder_ + "/t10k", 50);
  }
  ~Training() override { std::filesystem::remove_all(folder_); }

  int run(const std::string& command) {
    return run_only(command + " --export " + folder_ + "/export");
  }
  int run_only(const std::string& command) {
    const std::string line = std::string(WEFT_BIN_DIR) + "/" + command + " --run-dir " + folder_ +
                             "/run --quiet > " + folder_ + "/output 2>&1";
    const int status = std::system(line.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string output() const { return read_file(folder_ + "/output"); }
  Json result() const { return Json::parse(read_file(folder_ + "/run/result.json")); }

  // All that must not depend on ranks: bits of the losses, the export, the evaluation.
  std::vector<std::string> bits() const {
    std::vector<std::string> bits;
    std::ifstream metrics(folder_ + "/run/metrics.jsonl");
    for (std::string line; std::getline(metrics, line);)
      bits.push_back(Json::parse(line).at("loss_bits").text());
    bits.push_back(read_file(folder_ + "/export"));
    bits.push_back(result().at("final").dump());
    return bits;
  }

  void expect_same_bits(const std::string& command) {
    ASSERT_EQ(run(command), 0) << output();
    const auto alone = bits();
    ASSERT_GE(alone.size(), 5U);
    for (const char* ranks : {"--workers 2 --strategy ddp", "--workers 2 --strategy fsdp",
                              "--workers 3 --strategy zero1", "--workers 3 --strategy fsdp",
                              "--workers 4 --strategy zero2", "--workers 4 --strategy zero3"}) {
      ASSERT_EQ(run(command + " " + ranks), 0) << ranks << ": " << output();
      EXPECT_EQ(bits(), alone) << ranks;
    }
  }

  std::string folder_;
};

TEST_F(Training, OfAnMlpGivesTheSameBitsOnAnyRanks) {
  expect_same_bits(
      "mnist --model mlp --threads 1 --logical-shards 8 --global-batch 40 --epochs 2 "
      "--flip --data " +
      folder_);
}

TEST_F(Training, OfACnnGivesTheSameBitsOnAnyRanks) {
  expect_same_bits(
      "mnist --model cnn --threads 1 --logical-shards 4 --global-batch 40 --epochs 1 "
      "--optimizer adamw --lr 1e-3 --data " +
      folder_);
}

TEST_F(Training, OfAGptGivesTheSameBitsOnAnyRanks) {
  expect_same_bits(
      "gpt --layers 2 --width 32 --heads 2 --context 16 --threads 1 --sample 20 "
      "--logical-shards 8 --global-batch 16 --steps 4 --dropout 0.1 --data " +
      std::string(WEFT_TESTS_DIR) + "/../LICENSE");
}

TEST_F(Training, InBf16GivesTheSameBitsOnAnyRanks) {
  expect_same_bits(
      "mnist --model cnn --dtype bf16 --threads 1 --logical-shards 4 --global-batch 40 --epochs 1 "
      "--optimizer adamw --lr 1e-3 --data " +
      folder_);
  // What is exported are the f32 values, which any run can begin from.
  std::filesystem::rename(folder_ + "/export", folder_ + "/begin");
  const std::string from = "mnist --model cnn --threads 1 --global-batch 40 --steps 1 --init " +
                           folder_ + "/begin --data " + folder_;
  EXPECT_EQ(run(from), 0) << output();
  EXPECT_EQ(run(from + " --dtype bf16 --workers 2 --strategy fsdp"), 0) << output();
  const auto told = result().at("ranks").at(1).at("state_bytes");
  EXPECT_EQ(told.at("masters"), 2 * told.at("parameters").get<int64_t>());
}

TEST_F(Training, ResultTellsMemoryAndTrafficOfEveryRank) {
  const std::string command =
      "mnist --model mlp --threads 1 --global-batch 40 --steps 3 "
      "--optimizer adamw --lr 1e-3 --workers 2 --data " +
      folder_ + " --strategy ";
  ASSERT_EQ(run(command + "ddp"), 0) << output();
  const auto ddp = result();
  ASSERT_EQ(run(command + "fsdp"), 0) << output();
  const auto fsdp = result();
  EXPECT_EQ(fsdp.at("world_size"), 2);
  EXPECT_EQ(fsdp.at("strategy"), "fsdp");
  ASSERT_EQ(fsdp.at("ranks").size(), 2U);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(fsdp.at("ranks").at(rank).at("rank"), rank);
    const auto bytes = [&](const Json& json, const char* category) {
      return json.at("ranks").at(rank).at("resident_bytes").at(category).get<int64_t>();
    };
    // Halves, up to the padding of shards.
    for (const char* category : {"parameters", "gradients", "optimizer"})
      EXPECT_NEAR(bytes(fsdp, category), bytes(ddp, category) / 2.0, 512) << category;
    // What the ledger has counted is what the formula says.
    for (const auto* run : {&ddp, &fsdp}) {
      const auto& told = run->at("ranks").at(rank).at("state_bytes");
      for (const char* category : {"parameters", "gradients", "optimizer"})
        EXPECT_EQ(bytes(*run, category), told.at(category).get<int64_t>()) << category;
      const int64_t elements = run->at("parameters").get<int64_t>();
      EXPECT_EQ(told.at("parameters").get<int64_t>() + told.at("gradients").get<int64_t>() -
                    told.at("padding").get<int64_t>(),
                2 * 4 * elements / (run == &fsdp ? 2 : 1));
    }
  }
  // Three steps and the evaluation: losses a step, by a unit of their own.
  EXPECT_EQ(ddp.at("communication_by_unit").at("losses").at("all_reduce").at("calls"), 3);
  EXPECT_GT(fsdp.at("communication").at("reduce_scatter").at("bytes").get<int64_t>(), 0);
  EXPECT_GT(fsdp.at("communication").at("all_gather").at("calls").get<int64_t>(), 0);
  EXPECT_FALSE(ddp.at("communication").contains("all_gather") &&
               ddp.at("communication").at("all_gather").at("bytes").get<int64_t>() > 1000);
}

// A model whose state does not fit on a rank under ddp, and does when it is sharded.
// From weights of somebody else's, by way of a checkpoint.
TEST_F(Training, GoesOnFromAnImportedCheckpoint) {
  const std::string mnist = "mnist --model mlp --epochs 1 --global-batch 40 --threads 1 --data " +
                            folder_ + " --overwrite ";
  ASSERT_EQ(run(mnist + "--steps 1"), 0) << output();
  std::filesystem::remove_all(folder_ + "/run");
  const std::string import = std::string(WEFT_BIN_DIR) + "/weft checkpoint import " + folder_ +
                             "/export " + folder_ + "/run/checkpoints > /dev/null";
  ASSERT_EQ(std::system(import.c_str()), 0);
  ASSERT_EQ(run("mnist --model mlp --epochs 1 --global-batch 40 --threads 1 --resume auto --data " +
                folder_),
            0)
      << output();
  EXPECT_EQ(result().at("steps"), 3);
}

TEST_F(Training, ShardedTrainsWhereReplicatedHasNoMemory) {
  const std::string command =
      "gpt --layers 4 --width 64 --heads 2 --context 16 --threads 1 --global-batch 4 --steps 2 "
      "--sample 0 --workers 2 --memory-limit 3.6MB --data " +
      std::string(WEFT_TESTS_DIR) + "/../LICENSE --strategy ";
  EXPECT_EQ(run(command + "ddp"), 1);
  EXPECT_NE(output().find("optimizer"), std::string::npos) << output();  // the ledger
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/export"));
  EXPECT_EQ(run(command + "fsdp"), 0) << output();
}

// A model that no rank has the memory to hold whole is built and trained, also from given weights.
TEST_F(Training, ModelLargerThanAnyRank) {
  const std::string command =
      "gpt --layers 24 --width 64 --heads 2 --context 8 --threads 1 --global-batch 8 --steps 2 "
      "--logical-shards 8 --optimizer adamw --sample 0 --data " +
      std::string(WEFT_TESTS_DIR) + "/../LICENSE";
  const auto losses = [&] {
    auto all = bits();
    all.resize(2);
    return all;
  };
  ASSERT_EQ(run(command), 0) << output();
  const auto alone = losses();
  const int64_t whole = 4 * result().at("parameters").get<int64_t>();
  const std::string begin = folder_ + "/begin";
  std::filesystem::rename(folder_ + "/export", begin);
  ASSERT_EQ(run(command + " --init " + begin), 0) << output();
  const auto alone_from = losses();
  EXPECT_NE(alone_from, alone);
  const std::string little = command + " --workers 8 --memory-limit 4.5MB";
  ASSERT_GT(whole, 4'500'000);
  EXPECT_EQ(run_only(little + " --strategy zero2"), 1);
  EXPECT_NE(output().find("parameters"), std::string::npos) << output();  // the ledger
  ASSERT_EQ(run_only(little + " --strategy fsdp"), 0) << output();
  EXPECT_EQ(losses(), alone);
  ASSERT_EQ(run_only(little + " --strategy fsdp --init " + begin), 0) << output();
  EXPECT_EQ(losses(), alone_from);
  // Weights that do not fit are refused with all that is wrong.
  EXPECT_EQ(run_only(little + " --strategy fsdp --untied --init " + begin), 1);
  EXPECT_NE(output().find("missing: head.weight"), std::string::npos) << output();
}

}  // namespace
}  // namespace weft
