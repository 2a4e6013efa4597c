// `weft checkpoint`: what each command prints, returns and writes.
#include "dist/checkpoint.h"

#include "core/json.h"
#include "dist/thread_ranks.h"
#include "nn/nn.h"
#include "ops/ops.h"
#include "optim/optim.h"
#include "tests/support/temporary_directory.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>

namespace weft::test {
namespace {

struct Ended {
  int code = -1;
  std::string text;
};

Ended run_shell(const std::string& command) {
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  Ended ended;
  char buffer[4096];
  for (size_t got = 0; (got = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    ended.text.append(buffer, got);
  const int status = pclose(pipe);
  ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ended;
}

Ended weft(const std::string& arguments) {
  return run_shell(std::string(WEFT_BIN_DIR) + "/weft " + arguments);
}

bool has(const Ended& ended, const std::string& part) {
  return ended.text.find(part) != std::string::npos;
}

// Its head is tied to its embedding, and one parameter lies transposed.
struct Tied : nn::Module {
  nn::Embedding tokens{7, 4};
  nn::Linear head{4, 7, false};
  Tensor turned = transpose(contiguous(reshape(arange(0, 6, 1, {f32}), {3, 2})), 0, 1);
  Tied() {
    head.weight = tokens.weight;
    add("tokens", tokens);
    add_parameter("turned", turned);
    add("head", head);
  }
  Tensor forward(const Tensor& ids) override { return head(tokens(ids)); }
};

// Checkpoints of steps 1 and 2 by two ranks; what the model is after step 2.
std::map<std::string, std::vector<float>> train_two_steps(const std::string& directory) {
  std::map<std::string, std::vector<float>> values;
  dist::run_thread_ranks(2, [&](dist::Communicator& comm) {
    Tied model;
    dist::Parallel parallel(model, comm, {.strategy = "zero3"});
    optim::AdamW optimizer(parallel.parameters(), {.lr = 0.1});
    dist::Checkpointer checkpoints(model, parallel, {.directory = directory});
    checkpoints.add(optimizer);
    for (int64_t step = 0; step < 2; ++step) {
      parallel.begin_step(static_cast<uint64_t>(step));
      for (const dist::Shard& shard : parallel.shards()) {
        parallel.begin_shard(shard);
        const Tensor ids = from_values(std::vector<int64_t>{1, 2, 3});
        parallel.backward(sum(square(model(ids))));
      }
      optimizer.step();
      checkpoints.save({.step = step + 1,
                        .metric = 0.5 / static_cast<double>(step + 1),
                        .values = {{"word", std::string("hello")}}});
    }
    checkpoints.wait();
    parallel.with_full_parameters([&] {
      if (comm.rank() != 0) return;
      for (const auto& [name, tensor] : model.named_parameters())
        values[name] = tensor.to_vector<float>();
    });
  });
  return values;
}

TEST(WeftCheckpoint, ListsShowsAndVerifies) {
  const TemporaryDirectory run;
  train_two_steps(run / "checkpoints");
  for (const std::string& path : {run.path(), run / "checkpoints"}) {
    const Ended list = weft("checkpoint list " + path);
    EXPECT_EQ(list.code, 0);
    EXPECT_TRUE(has(list, "step-00000001") && has(list, "step-00000002") && has(list, "zero3"))
        << list.text;
    const Ended verify = weft("checkpoint verify " + path);
    EXPECT_EQ(verify.code, 0) << verify.text;
    EXPECT_TRUE(has(verify, "step-00000002: whole")) << verify.text;
  }
  const Ended show = weft("checkpoint show " + run.path() + "/checkpoints/step-00000002");
  EXPECT_EQ(show.code, 0);
  for (const char* part : {"step 2", "2 ranks of zero3", "metric 0.25", "word = hello",
                           "model.tokens.weight f32[7, 4]", "optimizer.average.tokens.weight",
                           "= model.tokens.weight  model.head.weight"})
    EXPECT_TRUE(has(show, part)) << part << "\n" << show.text;
}

TEST(WeftCheckpoint, VerifyNamesFileAndTensor) {
  const TemporaryDirectory run;
  train_two_steps(run / "checkpoints");
  const std::string file = run / "checkpoints/step-00000002/rank-00001-of-00002.safetensors";
  {
    std::fstream damaged(file, std::ios::binary | std::ios::in | std::ios::out);
    damaged.seekg(-3, std::ios::end);
    const auto at = damaged.tellg();
    const char byte = static_cast<char>(damaged.get() ^ 1);
    damaged.seekp(at);
    damaged.put(byte);
  }
  const Ended verify = weft("checkpoint verify " + run.path());
  EXPECT_EQ(verify.code, 1);
  EXPECT_TRUE(has(verify, "step-00000001: whole")) << verify.text;
  EXPECT_TRUE(has(verify, "step-00000002: damaged")) << verify.text;
  EXPECT_TRUE(has(verify, "rank-00001-of-00002.safetensors: tensor ")) << verify.text;
  // What is damaged is not exported either, and no half of it stays.
  const Ended exported = weft("checkpoint export --all " + run.path() +
                              "/checkpoints/step-00000002 " + (run / "all.safetensors"));
  EXPECT_EQ(exported.code, 1);
  EXPECT_FALSE(std::filesystem::exists(run / "all.safetensors"));
}

TEST(WeftCheckpoint, ExportIsTheModelAndImportTakesItBack) {
  const TemporaryDirectory run;
  const auto trained = train_two_steps(run / "checkpoints");
  const std::string second = run / "checkpoints/step-00000002";
  const std::string file = run / "model.safetensors";
  ASSERT_EQ(weft("checkpoint export " + second + " " + file).code, 0);
  std::map<std::string, std::vector<float>> exported;
  for (const auto& [name, tensor] : load_safetensors(file))
    exported[name] = tensor.to_vector<float>();
  EXPECT_EQ(exported, trained);
  std::map<std::string, std::string> metadata;
  for (const auto& [key, value] : load_safetensors_metadata(file))
    metadata[key] = value;
  EXPECT_EQ(metadata["alias.head.weight"], "tokens.weight");
  Tied loaded;
  loaded.load(file);
  EXPECT_EQ(loaded.head.weight.to_vector<float>(), trained.at("tokens.weight"));

  // As if somebody else had named the tensors.
  std::vector<NamedTensor> renamed;
  for (const auto& [name, tensor] : load_safetensors(file))
    renamed.push_back({name == "turned" ? "other" : "transformer." + name, tensor});
  renamed.push_back({"position_ids", zeros({3})});
  save_safetensors(run / "theirs.safetensors", renamed,
                   std::vector<std::pair<std::string, std::string>>{
                       {"alias.transformer.head.weight", "transformer.tokens.weight"}});
  std::ofstream(run / "map") << "# theirs  ours\ntransformer.* *\nother turned\nposition_ids -\n";
  const Ended imported = weft("checkpoint import " + (run / "theirs.safetensors") + " " +
                              (run / "imported") + " --map " + (run / "map"));
  ASSERT_EQ(imported.code, 0) << imported.text;
  EXPECT_EQ(weft("checkpoint diff " + (run / "imported/step-00000000") + " " + file).code, 0);
  // Training goes on from it as from any other.
  dist::run_thread_ranks(2, [&](dist::Communicator& comm) {
    Tied model;
    dist::Parallel parallel(model, comm, {.strategy = "fsdp"});
    optim::AdamW optimizer(parallel.parameters(), {.lr = 0.1});
    dist::Checkpointer checkpoints(model, parallel, {.directory = run / "imported"});
    checkpoints.add(optimizer);
    ASSERT_TRUE(checkpoints.resume().has_value());
    parallel.with_full_parameters([&] {
      for (const auto& [name, tensor] : model.named_parameters())
        EXPECT_EQ(tensor.to_vector<float>(), trained.at(name)) << name;
    });
  });
  // Nothing is overwritten.
  const Ended again = weft("checkpoint import " + file + " " + (run / "imported"));
  EXPECT_EQ(again.code, 1);
  EXPECT_TRUE(has(again, "step-00000000")) << again.text;
}

// An export, read by Python: the model that was trained; and a file that Python's package has
// written, imported and exported again.
TEST(WeftCheckpoint, PythonReadsExportsAndWritesImports) {
  const TemporaryDirectory run;
  const auto trained = train_two_steps(run / "checkpoints");
  const auto agrees = [&](const std::string& file, const std::string& expected) {
    const std::string script = std::string(WEFT_TESTS_DIR) + "/golden/check_export.py";
    const Ended ended = run_shell(concat({WEFT_PYTHON, " ", script, " ", file, " ", expected}));
    EXPECT_EQ(ended.code, 0) << ended.text;
    EXPECT_TRUE(has(ended, "tensors agree, read by Python")) << ended.text;
  };
  const std::string exported = run / "model.safetensors";
  ASSERT_EQ(weft("checkpoint export " + run.path() + "/checkpoints/step-00000002 " + exported).code,
            0);
  // A float as JSON, which has doubles, is that float.
  Json model = Json::object();
  for (const auto& [name, values] : trained)
    model[name] = values;
  std::ofstream(run / "model.json") << model.dump();
  agrees(exported, run / "model.json");

  const std::string theirs = std::string(WEFT_TESTS_DIR) + "/golden/interchange.safetensors";
  const Ended imported = weft("checkpoint import " + theirs + " " + (run / "theirs"));
  ASSERT_EQ(imported.code, 0) << imported.text;
  ASSERT_EQ(weft("checkpoint export " + (run / "theirs/step-00000000") + " " + exported).code, 0);
  agrees(exported, theirs);
}

TEST(WeftCheckpoint, DiffTellsWhatDiffersAndByHowMuch) {
  const TemporaryDirectory run;
  train_two_steps(run / "checkpoints");
  const std::string first = run / "checkpoints/step-00000001";
  const std::string second = run / "checkpoints/step-00000002";
  EXPECT_EQ(weft("checkpoint diff " + first + " " + first).code, 0);
  const Ended diff = weft("checkpoint diff " + first + " " + second);
  EXPECT_EQ(diff.code, 1);
  EXPECT_TRUE(has(diff, "model.tokens.weight: ")) << diff.text;
  EXPECT_TRUE(has(diff, "of 28 elements differ, by up to ")) << diff.text;
  EXPECT_TRUE(has(diff, "optimizer.step: 1 of 1 elements differ, by up to 1 ")) << diff.text;
  save_safetensors(run / "one.safetensors",
                   std::vector<NamedTensor>{{"turned", zeros({2, 2})}, {"more", zeros({1})}});
  const Ended other = weft("checkpoint diff " + first + " " + (run / "one.safetensors"));
  EXPECT_EQ(other.code, 1);
  EXPECT_TRUE(has(other, "model.turned: f32[2, 3] and f32[2, 2]")) << other.text;
  EXPECT_TRUE(has(other, "model.more: only in ")) << other.text;
  EXPECT_TRUE(has(other, "model.tokens.weight: only in ")) << other.text;
}

TEST(WeftCheckpoint, RefusesWhatMakesNoSenseInOneLine) {
  const TemporaryDirectory run;
  train_two_steps(run / "checkpoints");
  const std::string second = run / "checkpoints/step-00000002";
  ASSERT_EQ(weft("checkpoint export " + second + " " + (run / "a.safetensors")).code, 0);
  std::ofstream(run / "bad") << "one\n";
  std::ofstream(run / "unused") << "nobody ours\n";
  std::ofstream(run / "twice") << "tokens.weight turned\n";
  std::ofstream(run / "star") << "tokens.* fixed\n";
  const std::string import = "checkpoint import " + (run / "a.safetensors") + " " + (run / "new");
  const std::pair<std::string, int> cases[] = {
      {"checkpoint", 2},
      {"checkpoint show", 2},
      {"checkpoint export " + second, 2},
      {"checkpoint list " + (run / "nowhere"), 1},
      {"checkpoint show " + (run / "nowhere"), 1},
      {"checkpoint verify " + (run / "nowhere"), 1},
      {"checkpoint export " + second + " " + (run / "no/such/folder.safetensors"), 1},
      {"checkpoint import " + (run / "nowhere") + " " + (run / "new"), 1},
      {import + " --map " + (run / "nowhere"), 1},
      {import + " --map " + (run / "bad"), 1},
      {import + " --map " + (run / "unused"), 1},
      {import + " --map " + (run / "twice"), 1},
      {import + " --map " + (run / "star"), 1},
      {import + " --step -1", 2},
      {"checkpoint diff " + second + " " + (run / "nowhere"), 1}};
  for (const auto& [arguments, code] : cases) {
    const Ended ended = weft(arguments);
    EXPECT_EQ(ended.code, code) << arguments << "\n" << ended.text;
    EXPECT_EQ(std::count(ended.text.begin(), ended.text.end(), '\n'), 1) << ended.text;
    EXPECT_TRUE(ended.text.starts_with("weft")) << ended.text;
  }
  EXPECT_FALSE(std::filesystem::exists(run / "new"));
}

TEST(WeftBench, CheckpointMeasuresItsFiveCases) {
  const TemporaryDirectory directory;
  const std::string json = directory / "rows.jsonl";
  const Ended ended = weft("bench checkpoint --bytes 1MiB --workers 2 --repeats 1 --directory " +
                           directory.path() + " --json " + json);
  ASSERT_EQ(ended.code, 0) << ended.text;
  std::ifstream file(json);
  for (const char* name : {"save", "save_async_stall", "load", "raw_write", "raw_read"}) {
    std::string line;
    ASSERT_TRUE(std::getline(file, line));
    const auto row = Json::parse(line);
    EXPECT_EQ(row.at("bench"), "checkpoint");
    EXPECT_EQ(row.at("case"), name);
    EXPECT_EQ(row.at("workers"), 2);
    EXPECT_GT(row.at("rate").get<double>(), 0);
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()),
                          std::filesystem::directory_iterator()),
            1)
      << "only the rows are left";
  EXPECT_EQ(weft("bench checkpoint --bytes 4 --workers 2").code, 2);
}

}  // namespace
}  // namespace weft::test
