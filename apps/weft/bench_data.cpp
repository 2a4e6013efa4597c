// `weft bench data`: from a data set in memory to batches.
#include "apps/weft/bench.h"
#include "data/images.h"
#include "data/loader.h"
#include "weft.h"

namespace weft::app {
namespace {

class BenchData final : public Bench {
 public:
  explicit BenchData(CommandLine& bench)
      : Bench(bench, "data",
              "Batches of MNIST-like images: gathering alone, and the whole loader.") {
    line->add("--data", folder_, "folder with IDX files; empty for made-up images");
    line->add("--global-batch", batch_, "samples of a batch", 1, 1 << 20);
  }

  std::optional<int> run(std::vector<BenchRow>& rows) override {
    const data::Images images = folder_.empty() ? made_up() : data::read_mnist(folder_, true);
    std::vector<int64_t> indices;
    for (int64_t i = 0; i < batch_; ++i)
      indices.push_back(i * 7919 % images.size());
    const double gather = median_seconds(101, 5, [&] { images.gather(indices, batch_, {}); });
    rows.push_back(row("gather", gather / static_cast<double>(batch_)));

    data::Loader loader(images, {.batch = batch_});
    const double epoch = median_seconds(3, 1, [&] {
      while (loader.next()) {
      }
    });
    rows.push_back(row("pipeline", epoch / static_cast<double>(images.size())));
    return std::nullopt;
  }

 private:
  static data::Images made_up() {
    manual_seed(0);
    return {to(randint(0, 256, {60'000, 28, 28}), u8), to(randint(0, 10, {60'000}), u8)};
  }

  BenchRow row(const std::string& name, double seconds) const {
    return {.bench = "data",
            .name = name,
            .threads = threads,
            .median_seconds = seconds,
            .rate = 1 / seconds,
            .unit = "images/s"};
  }

  std::string folder_;
  int64_t batch_ = 128;
};

}  // namespace

std::unique_ptr<Bench> make_bench_data(CommandLine& bench) {
  return std::make_unique<BenchData>(bench);
}

}  // namespace weft::app
