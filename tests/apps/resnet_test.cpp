// The resnet app: the same bits on any ranks, recipes, f16, averages, resuming, refusals.
#include "tests/support/image_files.h"
#include "tests/support/runs.h"
#include "tests/support/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

namespace weft {
namespace {

using test::column;
using test::read_file;
using testing::HasSubstr;

class ResNetApp : public testing::Test {
 protected:
  ResNetApp() {
    test::write_images(folder_ + "/train", 72);
    test::write_images(folder_ + "/t10k", 30);
  }

  static std::vector<std::string> words(const std::string& text) {
    std::istringstream stream(text);
    std::vector<std::string> list;
    for (std::string word; stream >> word;)
      list.push_back(word);
    return list;
  }
  test::ProgramResult run(const std::string& flags) const {
    return test::run_program(words(std::string(WEFT_BIN_DIR) + "/resnet --quiet --threads 1 " +
                                   "--run-dir " + folder_ + "/run --export " + folder_ +
                                   "/export " + flags));
  }
  static void write_folders(const std::string& set) {
    for (const char* part : {"train", "val"}) {
      for (const char* name : {"cat", "dog"}) {
        const std::string of_class = set + "/" + part + "/" + name;
        std::filesystem::create_directories(of_class);
        for (int i = 0; i < 6; ++i) {
          test::write_file(of_class + "/" + std::to_string(i) + ".jpg",
                           test::make_jpeg(test::smooth_picture(40 + i, 50)));
        }
      }
    }
  }
  std::string data() const { return " --data " + folder_ + " "; }
  Json result() const { return Json::parse(read_file(folder_ + "/run/result.json")); }
  // All that must not depend on ranks.
  std::vector<std::string> bits() const {
    std::vector<std::string> bits = column(folder_ + "/run/metrics.jsonl", "loss_bits");
    bits.push_back(read_file(folder_ + "/export"));
    bits.push_back(result().at("final").dump());
    return bits;
  }
  void expect_same_bits(const std::string& flags) const {
    auto ran = run(flags);
    ASSERT_EQ(ran.code, 0) << ran.output;
    const auto alone = bits();
    for (const char* ranks : {"--workers 2 --strategy ddp", "--workers 2 --strategy fsdp",
                              "--workers 3 --strategy zero3"}) {
      ran = run(flags + " " + ranks);
      ASSERT_EQ(ran.code, 0) << ranks << ": " << ran.output;
      EXPECT_EQ(bits(), alone) << ranks;
    }
  }

  const test::TemporaryDirectory temporary_;
  const std::string folder_ = temporary_.path();
};

TEST_F(ResNetApp, FashionRecipeGivesTheSameBitsOnAnyRanks) {
  expect_same_bits("--preset fashion --epochs 1 --global-batch 16 --logical-shards 4" + data());
  EXPECT_TRUE(result().at("final").contains("test_top5_accuracy"));
  EXPECT_EQ(result().at("steps"), 4);  // the tail is left out
}

TEST_F(ResNetApp, InF16GivesTheSameBitsOnAnyRanks) {
  expect_same_bits(
      "--arch resnet20 --dtype f16 --epochs 1 --global-batch 16 --logical-shards 4 --ema 0.9 "
      "--tail mask --clip 1" +
      data());
  EXPECT_EQ(result().at("dtype"), "f16");
  EXPECT_GT(result().at("loss_scale").get<double>(), 0);
  EXPECT_EQ(result().at("steps"), 5);
}

TEST_F(ResNetApp, LarsOnSyntheticImagesGivesTheSameBitsOnAnyRanks) {
  expect_same_bits(
      "--preset imagenet-lars --arch resnet18 --synthetic --synthetic-samples 16 --image-size 33 "
      "--classes 12 --global-batch 8 --logical-shards 4 --epochs 2 --warmup-epochs 1");
}

TEST_F(ResNetApp, GoesOnWhereItWasStopped) {
  const std::string flags =
      "--arch resnet20 --dtype f16 --global-batch 8 --ema 0.9 --checkpoint-every 3 --epochs 2 "
      "--schedule step --milestones 1 --flip --shift 2" +
      data();
  ASSERT_EQ(run(flags).code, 0);
  const auto whole = bits();
  ASSERT_EQ(whole.size(), 20U);
  std::filesystem::remove_all(folder_ + "/run");
  const auto killed = run(flags + " --inject kill:phase=backward,step=11");
  EXPECT_NE(killed.code, 0);
  const auto resumed = run(flags + " --resume auto --workers 1");
  ASSERT_EQ(resumed.code, 0) << resumed.output;
  EXPECT_EQ(bits(), whole);
  // The rate has fallen to a tenth after the first epoch.
  const auto rates = column(folder_ + "/run/metrics.jsonl", "lr");
  EXPECT_NEAR(std::stod(rates[9]), std::stod(rates[8]) / 10, 1e-9);
}

TEST_F(ResNetApp, ExportCanBeginAnotherRun) {
  ASSERT_EQ(run("--arch resnet20 --global-batch 24 --steps 1" + data()).code, 0);
  std::filesystem::rename(folder_ + "/export", folder_ + "/begin");
  const auto again =
      run("--arch resnet20 --global-batch 24 --steps 1 --init " + folder_ + "/begin" + data());
  EXPECT_EQ(again.code, 0) << again.output;
  const auto other =
      run("--arch resnet32 --global-batch 24 --steps 1 --init " + folder_ + "/begin" + data());
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.output, HasSubstr("missing: layer1.3.conv1.weight"));
}

TEST_F(ResNetApp, RefusesWhatItCannotHonour) {
  const std::vector<std::pair<std::string, std::string>> refused = {
      {"--arch resnet19", "--arch: expected one of"},
      {"--preset imagenet", "--data: expected"},
      {"--schedule step --milestones 30,20", "--milestones: expected rising"},
      {"--schedule step --milestones 30,x", "--milestones: expected rising"},
      {"--schedule cosine --milestones 30", "--milestones: expected --schedule step"},
      {"--schedule one_cycle --warmup-epochs 2", "--warmup-epochs: expected none"},
      {"--classes 3", "--classes: expected --synthetic"},
      {"--synthetic --flip", "--flip: expected none"},
      {"--synthetic --data " + folder_, "--data: expected none"},
      {"--ema 2", "--ema"},
      {"--synthetic --bad-files skip", "--bad-files: expected none"},
      {"--bad-limit 3", "--bad-limit: expected --bad-files"},
      {"--optimizer adamw --lr 1e-3 --momentum 0.5",
       "--momentum: expected --optimizer sgd or lars"},
      {"--optimizer adamw", "--lr: expected one with --optimizer adamw"},
  };
  for (const auto& [flags, message] : refused) {
    const auto ran = run(flags);
    EXPECT_EQ(ran.code, 2) << flags;
    EXPECT_THAT(ran.output, HasSubstr(message)) << flags;
  }
  const auto nothing = run("--data " + folder_ + "/no/such/folder");
  EXPECT_EQ(nothing.code, 1);
  EXPECT_THAT(nothing.output, HasSubstr("expected images in"));
  const auto no_files = run("--bad-files skip" + data());
  EXPECT_EQ(no_files.code, 1);
  EXPECT_THAT(no_files.output,
              HasSubstr("expected the folders train and val for --bad-files skip"));
}

// Folders of image files, and what `weft data pack` makes of them.
TEST_F(ResNetApp, TrainsOnFoldersAndOnPackedFiles) {
  write_folders(folder_ + "/set");
  const std::string flags =
      "--arch resnet20 --image-size 24 --global-batch 4 --epochs 2 --flip --erase 0.5 --mixup 0.4 "
      "--cutmix 1 --label-smoothing 0.1 --logical-shards 4 --data " +
      folder_;
  expect_same_bits(flags + "/set");
  EXPECT_EQ(read_file(folder_ + "/run/classes.txt"), "cat\ndog\n");
  EXPECT_EQ(result().at("steps"), 6);
  std::filesystem::create_directories(folder_ + "/packed");
  for (const char* part : {"train", "val"}) {
    const auto packed = test::run_program(
        words(std::string(WEFT_BIN_DIR) + "/weft data pack --quiet --size 32 " + folder_ + "/set/" +
              part + " " + folder_ + "/packed/" + part + ".pack"));
    ASSERT_EQ(packed.code, 0) << packed.output;
  }
  const auto packed = run(flags + "/packed --data-threads 2");
  ASSERT_EQ(packed.code, 0) << packed.output;
  EXPECT_EQ(result().at("steps"), 6);
  EXPECT_EQ(read_file(folder_ + "/run/classes.txt"), "cat\ndog\n");
}

// A test image that cannot be read is not one that is classified wrongly.
TEST_F(ResNetApp, UnreadableImagesAreCountedAndLeftOutOfTheTest) {
  write_folders(folder_ + "/set");
  const std::string flags =
      "--arch resnet20 --image-size 24 --global-batch 4 --epochs 1 --data " + folder_ + "/set";
  const std::string bad = folder_ + "/set/val/dog/5.jpg";
  test::write_file(bad, test::bytes_of("no image"));
  auto ran = run(flags + " --bad-files skip");
  ASSERT_EQ(ran.code, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("could not read 1 images, first"));
  const Json with_it = result().at("final");
  EXPECT_EQ(with_it.at("unreadable_samples"), 1);
  std::filesystem::remove(bad);
  ran = run(flags);
  ASSERT_EQ(ran.code, 0) << ran.output;
  for (const char* metric : {"train_loss", "test_loss", "test_accuracy"})
    EXPECT_EQ(result().at("final").at(metric).dump(), with_it.at(metric).dump()) << metric;
}

// Labels that mean something else, or samples in other places, would go unnoticed.
TEST_F(ResNetApp, GoesOnWithTheSameImagesOnly) {
  write_folders(folder_ + "/set");
  const std::string flags =
      "--arch resnet20 --image-size 24 --global-batch 4 --epochs 2 "
      "--checkpoint-every 1 --data " +
      folder_ + "/set";
  ASSERT_NE(run(flags + " --inject kill:phase=backward,step=3").code, 0);
  std::filesystem::rename(folder_ + "/set/train/cat/5.jpg", folder_ + "/set/train/cat/7.jpg");
  auto ran = run(flags + " --resume auto");
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.output, HasSubstr("expected the training data of"));
  for (const char* part : {"train", "val"})
    std::filesystem::rename(folder_ + "/set/" + part + "/cat", folder_ + "/set/" + part + "/emu");
  ran = run(flags + " --resume auto");
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.output, HasSubstr("classes.txt line 1: expected the classes of the run"));
  EXPECT_EQ(read_file(folder_ + "/run/classes.txt"), "cat\ndog\n");
}

// As where each host has its own copy.
TEST_F(ResNetApp, RanksWithOtherImagesAreNamed) {
  for (const char* rank : {"0", "1"})
    write_folders(folder_ + "/set" + rank);
  std::filesystem::rename(folder_ + "/set1/train/dog/2.jpg", folder_ + "/set1/train/dog/9.jpg");
  const std::string resnet = std::string(WEFT_BIN_DIR) +
                             "/resnet --quiet --threads 1 --arch resnet20 --image-size 24 "
                             "--global-batch 4 --epochs 1 --run-dir " +
                             folder_ + "/run --data " + folder_ + "/set$WEFT_RANK";
  const auto ran = test::run_program(
      {std::string(WEFT_BIN_DIR) + "/weft", "run", "-n", "2", "--", "sh", "-c", "exec " + resnet});
  EXPECT_NE(ran.code, 0);
  EXPECT_THAT(ran.output, HasSubstr("training data: 12 samples of [3, 24, 24], files "));
  EXPECT_THAT(ran.output, HasSubstr("rank 1"));
}

}  // namespace
}  // namespace weft
