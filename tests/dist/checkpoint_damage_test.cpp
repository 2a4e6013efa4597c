// Every byte of a checkpoint matters: any that changes and any that is missing is found, and named.
#include "autograd/grad_mode.h"
#include "dist/checkpoint.h"
#include "dist/checkpoint_reader.h"
#include "ops/ops.h"
#include "optim/optim.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/training_rank.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace weft::test {
namespace {

struct Small : nn::Module {
  nn::Linear fc{3, 5};
  Tensor wide = full({4}, 0.5, {f64});
  Tensor count = zeros({2}, {i64});
  Small() {
    add("fc", fc);
    add_parameter("wide", wide);
    add_buffer("count", count);
  }
  Tensor forward(const Tensor& x) override { return fc(x) * weft::to(sum(wide), f32); }
};

// Two ranks' checkpoint with several blocks a tensor.
void save_small(const std::string& directory, std::initializer_list<int64_t> steps) {
  dist::run_thread_ranks(2, [&](dist::Communicator& comm) {
    Small model;
    dist::Parallel parallel(model, comm, {.strategy = "zero3"});
    optim::Sgd optimizer(parallel.parameters(), {.lr = 0.1, .momentum = 0.9});
    dist::Checkpointer checkpoints(model, parallel, {.directory = directory, .block_bytes = 16});
    checkpoints.add(optimizer);
    uint64_t at = 0;
    for (const int64_t step : steps) {
      parallel.begin_step(at++);
      for (const dist::Shard& shard : parallel.shards()) {
        parallel.begin_shard(shard);
        parallel.backward(sum(square(model(ones({2, 3})))));
      }
      optimizer.step();
      checkpoints.save({.step = step});
      checkpoints.wait();
    }
  });
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

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
    const std::string whole = bytes_of(path);
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
    const std::string whole = bytes_of(path);
    for (size_t length = 0; length < whole.size(); ++length) {
      std::filesystem::resize_file(path, length);
      const auto damage = damage_of(checkpoint);
      ASSERT_FALSE(damage.empty()) << name << " cut to " << length;
      EXPECT_NE(damage[0].find(name), std::string::npos) << damage[0];
      write(path, whole);
    }
    write(path, whole + "x");
    EXPECT_FALSE(damage_of(checkpoint).empty());
    std::filesystem::remove(path);
    const auto damage = damage_of(checkpoint);
    ASSERT_FALSE(damage.empty());
    EXPECT_NE(damage[0].find(name), std::string::npos) << damage[0];
    write(path, whole);
  }
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

// What resume() does about damage, on several ranks.
TEST(CheckpointDamage, ResumeTakesTheNewestThatIsWholeAndSaysWhatItPassedOver) {
  const TemporaryDirectory directory;
  save_small(directory.path(), {1, 2, 3});
  const auto flip = [&](const std::string& name, size_t from_end) {
    std::string bytes = bytes_of(directory / name);
    bytes[bytes.size() - from_end] ^= 4;
    write(directory / name, bytes);
  };
  flip("step-00000003/manifest.json", 100);
  flip("step-00000002/rank-00000-of-00002.safetensors", 1);
  const auto resume = [&](const std::function<void(dist::Checkpointer&, Small&)>& f) {
    dist::run_thread_ranks(3, [&](dist::Communicator& comm) {
      Small model;
      dist::Parallel parallel(model, comm, {.strategy = "zero3"});
      optim::Sgd optimizer(parallel.parameters(), {.lr = 0.1, .momentum = 0.9});
      dist::Checkpointer checkpoints(model, parallel, {.directory = directory.path()});
      checkpoints.add(optimizer);
      f(checkpoints, model);
    });
  };
  resume([&](dist::Checkpointer& checkpoints, Small&) {
    const auto resumed = checkpoints.resume();
    ASSERT_TRUE(resumed.has_value());
    EXPECT_EQ(resumed->progress.step, 1);
    ASSERT_EQ(resumed->passed_over.size(), 2u);
    EXPECT_NE(resumed->passed_over[0].find("step-00000003/manifest.json"), std::string::npos);
    EXPECT_NE(resumed->passed_over[1].find("step-00000002/rank-00000"), std::string::npos);
    EXPECT_NE(resumed->passed_over[1].find("tensor "), std::string::npos);
  });
  flip("step-00000001/manifest.json", 50);
  resume([&](dist::Checkpointer& checkpoints, Small&) {
    EXPECT_THROW(checkpoints.resume(), dist::DamagedCheckpoint);
  });
}

TEST(CheckpointDamage, AReadErrorIsDamageAndAnotherModelIsNot) {
  const TemporaryDirectory directory;
  save_small(directory.path(), {1});
  dist::run_thread_ranks(2, [&](dist::Communicator& comm) {
    Small model;
    dist::Parallel parallel(model, comm, {.strategy = "ddp"});
    const auto broken =
        dist::hooked_storage(dist::local_storage(), [](const dist::StorageOperation& operation) {
          const bool fails = operation.action == dist::StorageAction::read &&
                             operation.path.find("rank-00001") != std::string::npos;
          return dist::StorageFault{.error = fails ? EIO : 0};
        });
    dist::Checkpointer checkpoints(model, parallel,
                                   {.directory = directory.path(), .storage = broken});
    try {
      checkpoints.resume();
      FAIL() << "expected an error";
    } catch (const dist::DamagedCheckpoint& error) {
      EXPECT_NE(std::string(error.what()).find("Input/output error"), std::string::npos);
    }
  });
  struct Other : nn::Module {
    nn::Linear fc{3, 6};
    Tensor more = ones({2});
    Other() {
      add("fc", fc);
      add_parameter("more", more);
    }
    Tensor forward(const Tensor& x) override { return fc(x); }
  };
  dist::run_thread_ranks(2, [&](dist::Communicator& comm) {
    Other model;
    dist::Parallel parallel(model, comm, {.strategy = "ddp"});
    const auto start = model.fc.bias.to_vector<float>();
    dist::Checkpointer checkpoints(model, parallel, {.directory = directory.path()});
    try {
      checkpoints.resume();
      FAIL() << "expected an error";
    } catch (const dist::DamagedCheckpoint&) {
      FAIL() << "expected an error of the plain kind";
    } catch (const Error& error) {
      const std::string text = error.what();
      for (const char* part : {"missing: model.more", "model.fc.bias: expected f32[6], got f32[5]",
                               "unexpected: model.wide", "unexpected: model.count"})
        EXPECT_NE(text.find(part), std::string::npos) << text;
    }
    EXPECT_EQ(model.fc.bias.to_vector<float>(), start);
  });
}

TEST(CheckpointDamage, AnotherOptimizerIsRefused) {
  const TemporaryDirectory directory;
  save_small(directory.path(), {1});
  dist::run_thread_ranks(2, [&](dist::Communicator& comm) {
    Small model;
    dist::Parallel parallel(model, comm, {.strategy = "zero1"});
    optim::AdamW optimizer(parallel.parameters());
    dist::Checkpointer checkpoints(model, parallel, {.directory = directory.path()});
    checkpoints.add(optimizer);
    const auto start = model.fc.bias.to_vector<float>();
    EXPECT_THROW(checkpoints.resume(), Error);
    EXPECT_EQ(model.fc.bias.to_vector<float>(), start);
  });
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
