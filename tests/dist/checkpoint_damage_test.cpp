// Every byte of a checkpoint matters: any that changes and any that is missing is found, and named.
#include "autograd/grad_mode.h"
#include "dist/checkpoint.h"
#include "dist/checkpoint_reader.h"
#include "tests/support/small_checkpoint.h"
#include "tests/support/temporary_directory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace weft::test {
namespace {

// What reading all of it says; empty where it is whole.
std::vector<std::string> damage_of(const std::string& checkpoint) {
  try {
    return dist::CheckpointReader(checkpoint).verify();
  } catch (const dist::DamagedCheckpoint& error) {
    return {error.what()};
  }
}

// The tensor whose bytes include byte `at` of a file; empty in its head.
std::string tensor_at(const dist::Manifest& manifest, const std::string& file, int64_t at) {
  for (const dist::StoredTensor& tensor : manifest.tensors) {
    for (const dist::StoredInterval& interval : tensor.intervals) {
      const int64_t bytes = (interval.end - interval.begin) * size_of(tensor.dtype);
      if (manifest.files[static_cast<size_t>(interval.file)].name == file &&
          at >= interval.offset && at < interval.offset + bytes)
        return tensor.name;
    }
  }
  return "";
}

TEST(CheckpointDamage, EveryChangedByteIsFoundAndNamed) {
  const TemporaryDirectory directory;
  save_small(directory.path(), {1});
  const std::string checkpoint = directory / "step-00000001";
  ASSERT_EQ(damage_of(checkpoint), std::vector<std::string>{});
  const dist::Manifest manifest = dist::CheckpointReader(checkpoint).manifest();
  ASSERT_EQ(manifest.files.size(), 2u);
  size_t flips = 0;
  for (const std::string& name : dist::local_storage()->list(checkpoint)) {
    const std::string path = checkpoint + "/" + name;
    const std::string whole = file_bytes(path);
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    const auto put = [&](size_t at, char byte) {
      file.seekp(static_cast<std::streamoff>(at));
      file.put(byte);
      file.flush();
    };
    for (size_t at = 0; at < whole.size(); ++at) {
      for (const int change : {1 << (at % 8), 0x20, 0xff}) {
        put(at, static_cast<char>(whole[at] ^ change));
        const auto damage = damage_of(checkpoint);
        ASSERT_EQ(damage.size(), 1u) << name << " byte " << at << " ^ " << change;
        EXPECT_NE(damage[0].find(name), std::string::npos) << damage[0];
        const std::string tensor = tensor_at(manifest, name, static_cast<int64_t>(at));
        EXPECT_NE(damage[0].find(tensor), std::string::npos) << damage[0];
        ++flips;
      }
      put(at, whole[at]);
    }
  }
  EXPECT_GT(flips, 3u * 1500u);
  EXPECT_EQ(damage_of(checkpoint), std::vector<std::string>{});
}

TEST(CheckpointDamage, EveryCutAndAddedByteIsFoundAndNamed) {
  const TemporaryDirectory directory;
  save_small(directory.path(), {1});
  const std::string checkpoint = directory / "step-00000001";
  for (const std::string& name : dist::local_storage()->list(checkpoint)) {
    const std::string path = checkpoint + "/" + name;
    const std::string whole = file_bytes(path);
    for (size_t length = whole.size(); length-- > 0;) {
      std::filesystem::resize_file(path, length);
      const auto damage = damage_of(checkpoint);
      ASSERT_FALSE(damage.empty()) << name << " cut to " << length;
      EXPECT_NE(damage[0].find(name), std::string::npos) << damage[0];
    }
    write_bytes(path, whole + "x");
    EXPECT_FALSE(damage_of(checkpoint).empty());
    std::filesystem::remove(path);
    const auto damage = damage_of(checkpoint);
    ASSERT_FALSE(damage.empty());
    EXPECT_NE(damage[0].find(name), std::string::npos) << damage[0];
    write_bytes(path, whole);
  }
  EXPECT_EQ(damage_of(checkpoint), std::vector<std::string>{});
}

// Where the file system cannot exchange two names: however far a process comes with the renames,
// one of the two is the checkpoint, and nothing else is left.
TEST(CheckpointDamage, ReplacingByRenamesLosesNoCheckpoint) {
  for (int dies_at = 0; dies_at <= 3; ++dies_at) {
    const TemporaryDirectory directory;
    save_small(directory.path(), {1});
    const std::string checkpoint = directory / "step-00000001";
    const std::string fresh = directory / ".step-00000001.new.partial";
    std::filesystem::copy(checkpoint, fresh);
    write_bytes(fresh + "/new", "");
    int renames = 0;
    const auto storage =
        dist::hooked_storage(dist::local_storage(), [&](const dist::StorageOperation&) {
          if (renames++ == dies_at) throw Error("dies");
          return dist::StorageFault{};
        });
    try {
      dist::exchange_by_renames(*storage, fresh, checkpoint);
      EXPECT_EQ(dies_at, 3);
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "dies");
    }
    dist::CheckpointDirectory(directory.path()).clean();
    EXPECT_EQ(dist::local_storage()->list(directory.path()),
              std::vector<std::string>{"step-00000001"})
        << dies_at;
    EXPECT_EQ(damage_of(checkpoint), std::vector<std::string>{});
    EXPECT_EQ(std::filesystem::exists(checkpoint + "/new"), dies_at >= 2) << dies_at;
  }
}

// A rename that fails is taken back.
TEST(CheckpointDamage, ReplacingByRenamesThatFailLeavesTheOldOne) {
  const TemporaryDirectory directory;
  save_small(directory.path(), {1});
  const std::string checkpoint = directory / "step-00000001";
  EXPECT_THROW(dist::exchange_by_renames(*dist::local_storage(), directory / "none", checkpoint),
               dist::StorageError);
  EXPECT_EQ(damage_of(checkpoint), std::vector<std::string>{});
}

TEST(CheckpointDamage, ALostFileNamesItsTensors) {
  const TemporaryDirectory directory;
  save_small(directory.path(), {1});
  const std::string checkpoint = directory / "step-00000001";
  std::filesystem::remove(checkpoint + "/rank-00001-of-00002.safetensors");
  std::string all;
  for (const std::string& line : damage_of(checkpoint))
    all += line + "\n";
  EXPECT_NE(all.find("tensor model.fc.bias"), std::string::npos) << all;
}

// A model whose parameter lies otherwise in memory than the one that was saved.
TEST(CheckpointDamage, LayoutsAreTurnedIntoEachOther) {
  struct Laid : nn::Module {
    Tensor weight;
    explicit Laid(bool transposed) {
      const Tensor values = reshape(arange(0, 600, 1, {f32}), {20, 30});
      weight = transposed ? transpose(contiguous(transpose(values, 0, 1)), 0, 1) : values;
      add_parameter("weight", weight);
    }
    Tensor forward(const Tensor& x) override { return x; }
  };
  for (const bool saved : {false, true}) {
    const TemporaryDirectory directory;
    dist::run_thread_ranks(2, [&](dist::Communicator& comm) {
      Laid model(saved);
      dist::Parallel parallel(model, comm, {.strategy = "zero3"});
      dist::Checkpointer checkpoints(model, parallel, {.directory = directory.path()});
      checkpoints.save({});
      checkpoints.wait();
    });
    dist::CheckpointReader reader(directory / "step-00000000");
    const Tensor read = reader.read(*reader.manifest().find("model.weight"));
    EXPECT_EQ(read.to_vector<float>(), Laid(false).weight.to_vector<float>());
    dist::run_thread_ranks(3, [&](dist::Communicator& comm) {
      Laid model(!saved);
      dist::Parallel parallel(model, comm, {.strategy = "zero3"});
      parallel.with_full_parameters(
          [&] {
            const NoGrad no_grad;
            zero_(model.weight);
          },
          true);
      dist::Checkpointer checkpoints(model, parallel, {.directory = directory.path()});
      ASSERT_TRUE(checkpoints.resume().has_value());
      parallel.with_full_parameters([&] {
        EXPECT_EQ(model.weight.to_vector<float>(), Laid(false).weight.to_vector<float>());
      });
    });
  }
}

}  // namespace
}  // namespace weft::test
