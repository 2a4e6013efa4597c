// `weft bench data`: from a data set in memory, and from JPEG files, to batches.
#include "apps/weft/bench.h"
#include "apps/weft/photographs.h"
#include "data/image_folder.h"
#include "data/images.h"
#include "data/loader.h"
#include "weft.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>

namespace weft::app {
namespace {

constexpr int64_t kRounds = 7;
constexpr int64_t kAtOnce = 32;  // images of a batch, from files

class BenchData final : public Bench {
 public:
  explicit BenchData(CommandLine& bench)
      : Bench(bench, "data",
              "Batches of MNIST-like images from memory (gathering alone, and the whole loader), "
              "and of photographs from JPEG files (decoding, also with random-resized-crop, flip "
              "and normalising, and the whole loader). Times are for one image.") {
    line->add("--data", folder_,
              "folder with IDX files, or of image files, a folder a class; empty for made-up ones");
    line->add("--global-batch", batch_, "samples of a batch from memory", 1, 1 << 20);
    line->add("--photographs", photographs_,
              "where made-up photographs are kept: written if the folder is not there; empty for a "
              "temporary one");
    line->add("--image-size", size_, "pixels a side of a decoded image", 1, 4096);
  }

  std::optional<int> run(std::vector<BenchRow>& rows) override {
    const bool given = !folder_.empty();
    const bool idx = given && has_idx(folder_);
    if (given && !photographs_.empty() && !idx)
      return line->reject("expected --data with image files or --photographs, got both");
    if (!given || idx) bench_memory(rows);
    if (given && !idx) {
      bench_files(folder_, rows);
    } else {
      bench_files(Photographs(photographs_).folder(), rows);
    }
    return std::nullopt;
  }

 private:
  static bool has_idx(const std::string& folder) {
    const std::string name = folder + "/train-images-idx3-ubyte";
    return access(name.c_str(), F_OK) == 0 || access((name + ".gz").c_str(), F_OK) == 0;
  }

  void bench_memory(std::vector<BenchRow>& rows) const {
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
    rows.push_back(row("gather_pipeline", epoch / static_cast<double>(images.size())));
  }

  void bench_files(const std::string& folder, std::vector<BenchRow>& rows) const {
    const data::ImageFolder images(folder, {.height = size_,
                                            .width = size_,
                                            .crop = data::Crop::random,
                                            .mean = {0.485, 0.456, 0.406},
                                            .stddev = {0.229, 0.224, 0.225},
                                            .flip = true});
    const auto count = static_cast<double>(images.size());
    std::vector<std::vector<std::byte>> files;
    for (int64_t i = 0; i < images.size(); ++i)
      files.push_back(contents(images.path(i)));
    // One after the other in each round, so that all see the same machine.
    std::vector<double> whole;
    std::vector<double> cut;
    std::vector<double> loaded;
    data::Loader loader(images, {.batch = kAtOnce, .threads = static_cast<int>(threads)});
    for (int64_t round = 0; round <= kRounds; ++round) {
      const double times[] = {
          median_seconds(1, 0, [&] { decode_all(files); }),
          median_seconds(1, 0, [&] { gather_all(images, static_cast<uint64_t>(round)); }),
          median_seconds(1, 0, [&] {
            while (loader.next()) {
            }
          })};
      if (round == 0) continue;  // files and memory are warm from here on
      whole.push_back(times[0] / count);
      cut.push_back(times[1] / count);
      loaded.push_back(times[2] / count);
    }
    rows.push_back(row("decode", median(whole)));
    rows.push_back(row("decode_to_tensor", median(cut)));
    rows.push_back(row("pipeline", median(loaded)));
  }

  // By one thread, as libjpeg does it.
  static void decode_all(const std::vector<std::vector<std::byte>>& files) {
    for (const auto& file : files)
      data::decode_image(file, "bench");
  }

  // What the loader does, without it: the same crops in the same order.
  static void gather_all(const data::ImageFolder& images, uint64_t epoch) {
    for (int64_t first = 0; first < images.size(); first += kAtOnce) {
      std::vector<int64_t> indices;
      for (int64_t i = first; i < std::min(images.size(), first + kAtOnce); ++i)
        indices.push_back(i);
      images.gather(indices, kAtOnce, {.seed = 0, .epoch = epoch});
    }
  }

  static std::vector<std::byte> contents(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
    return {bytes, bytes + text.size()};
  }

  static double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  }

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
  std::string photographs_;
  int64_t batch_ = 128;
  int64_t size_ = 224;
};

}  // namespace

std::unique_ptr<Bench> make_bench_data(CommandLine& bench) {
  return std::make_unique<BenchData>(bench);
}

}  // namespace weft::app
