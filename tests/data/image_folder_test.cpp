#include "data/image_folder.h"

#include "core/parallel.h"
#include "data/detail/file.h"
#include "data/detail/image_reader.h"
#include "data/detail/sample_transform.h"
#include "data/loader.h"
#include "data/mixing.h"
#include "data/packed.h"
#include "tests/support/image_files.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <fstream>

namespace weft::data {
namespace {

namespace fs = std::filesystem;
using test::make_jpeg;
using test::make_png;
using test::smooth_picture;
using test::write_file;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr ImageOptions kSmall{.height = 8, .width = 8};

class ImageFolderTest : public testing::Test {
 protected:
  std::string folder(const std::string& name) {
    fs::create_directories(root_ / name);
    return root_ / name;
  }
  void image(const std::string& path, int width = 20, int height = 16, bool png = false) {
    fs::create_directories(fs::path(root_ / path).parent_path());
    const auto picture = smooth_picture(width, height);
    write_file(root_ / path, png ? make_png(picture) : make_jpeg(picture));
  }
  ImageFolder open(ImageFolderOptions options = {}) const {
    return ImageFolder(root_.path(), kSmall, options);
  }
  std::vector<std::string> paths(const ImageFolder& images) const {
    std::vector<std::string> all;
    for (int64_t i = 0; i < images.size(); ++i)
      all.push_back(images.path(i).substr(root_.path().size() + 1));
    return all;
  }
  std::string failure(ImageFolderOptions options = {}) const {
    return test::error_of([&] { open(options); });
  }

  test::TemporaryDirectory root_;
};

TEST_F(ImageFolderTest, ClassesAndSamplesAreInTheOrderOfBytes) {
  for (const char* path : {"2/b.jpg", "10/a.JPEG", "zebra/x/deep.Png", "zebra/a.png", "2/B.jpg",
                           "2/a/z.jpg", "Äpfel und Birnen/größe.jpg", "日本/犬.jpg"})
    image(path, 20, 16, std::string(path).ends_with("ng"));
  const ImageFolder images = open();
  EXPECT_THAT(images.classes(), ElementsAre("10", "2", "zebra", "Äpfel und Birnen", "日本"));
  EXPECT_THAT(paths(images),
              ElementsAre("10/a.JPEG", "2/B.jpg", "2/a/z.jpg", "2/b.jpg", "zebra/a.png",
                          "zebra/x/deep.Png", "Äpfel und Birnen/größe.jpg", "日本/犬.jpg"));
  EXPECT_EQ(images.label(0), 0);
  EXPECT_EQ(images.label(5), 2);
  const std::vector<int64_t> all = {7, 0, 3};
  const Batch batch = images.gather(all, 4, {});
  EXPECT_EQ(batch.inputs.shape(), Shape({4, 3, 8, 8}));
  EXPECT_TRUE(batch.inputs.is_channels_last());
  EXPECT_THAT(batch.targets.to_vector<int64_t>(), ElementsAre(4, 0, 1, kNoTarget));
  EXPECT_THROW(images.path(8), Error);
}

TEST_F(ImageFolderTest, ContentDecidesNotTheName) {
  image("a/jpeg.jpg");
  image("a/really_png.jpg", 20, 16, true);
  image("a/photo.dat");
  image("a/no_ending", 20, 16, true);
  write_file(root_ / "a/notes.txt", test::bytes_of("a"));
  write_file(root_ / "a/Thumbs.db", {});
  const ImageFolder images = open();
  EXPECT_THAT(paths(images),
              ElementsAre("a/jpeg.jpg", "a/no_ending", "a/photo.dat", "a/really_png.jpg"));
  const std::vector<int64_t> all = {0, 1, 2, 3};
  const auto values = images.gather(all, 4, {}).inputs;
  for (int64_t i = 0; i < 8 * 8 * 3; ++i)
    EXPECT_NEAR(values.data<float>()[i], values.data<float>()[3 * 192 + i], 0.06);
}

TEST_F(ImageFolderTest, HiddenNamesAndStrayFilesAreLeftOut) {
  image("a/x.jpg");
  image("a/.x.jpg");
  image("a/.cache/y.jpg");
  image(".git/z.jpg");
  image("stray.jpg");
  EXPECT_THAT(paths(open()), ElementsAre("a/x.jpg"));
  EXPECT_THAT(open().classes(), ElementsAre("a"));
}

TEST_F(ImageFolderTest, LinksAreFollowedAndLoopsEnd) {
  image("a/x.jpg");
  image("shelf/deep/y.jpg");
  fs::create_directory_symlink(root_ / "shelf", root_ / "b");  // a class
  fs::create_directory_symlink(root_.path(), root_ / "a/up");  // back to the root
  fs::create_directory_symlink(".", root_ / "a/here");         // to itself
  fs::create_symlink(root_ / "shelf/deep/y.jpg", root_ / "a/z.jpg");
  fs::create_symlink("round", root_ / "a/round");  // a link that is its own end
  const ImageFolder images = open();
  // a/up leads through the root to other classes, but never back into a.
  for (const std::string& path : paths(images))
    EXPECT_EQ(path.find("up/a/"), std::string::npos) << path;
  const auto all = paths(images);
  EXPECT_THAT(all, testing::Contains("a/x.jpg"));
  EXPECT_THAT(all, testing::Contains("a/z.jpg"));
  EXPECT_THAT(all, testing::Contains("b/deep/y.jpg"));
  EXPECT_THAT(all, testing::Not(testing::Contains(HasSubstr("here"))));
}

TEST_F(ImageFolderTest, EmptyClassesAreRefusedOrKeptNeverRenumbered) {
  image("a/x.jpg");
  folder("b");
  image("c/y.jpg");
  EXPECT_THAT(failure(), HasSubstr("got none in " + root_.path() + "/b"));
  const ImageFolder kept = open({.empty_classes = EmptyClass::keep});
  EXPECT_THAT(kept.classes(), ElementsAre("a", "b", "c"));
  EXPECT_EQ(kept.label(1), 2);
}

TEST_F(ImageFolderTest, ValidationTakesTheClassesOfTraining) {
  image("b/x.jpg");
  const ImageFolder same = open({.empty_classes = EmptyClass::keep, .classes = {"a", "b"}});
  EXPECT_EQ(same.label(0), 1);
  EXPECT_THAT(failure({.classes = {"a", "b"}}), HasSubstr("/a"));
  EXPECT_THAT(failure({.classes = {"a"}}), HasSubstr("/b, which is none of them"));
  EXPECT_THAT(failure({.classes = {"b", "a", "b"}}), HasSubstr("b twice"));

  const std::string path = root_ / "classes.txt";
  const std::vector<std::string> names = {"10", "2", "Äpfel und Birnen"};
  save_classes(path, names);
  EXPECT_EQ(load_classes(path), names);
  EXPECT_EQ(fs::file_size(path), 23u);
  EXPECT_THROW(save_classes(path, {"a\nb"}), Error);
  EXPECT_EQ(load_classes(path), names);  // the old file is still there, and nothing beside it
  write_file(path, test::bytes_of("a\nb\na\n"));
  EXPECT_THAT(test::error_of([&] { load_classes(path); }), HasSubstr("line 3"));
  for (const char* text : {"a\nb", "", "a\n\nb\n", "a\r\n\r\n", "\xef\xbb\xbf"}) {
    write_file(path, test::bytes_of(text));
    EXPECT_THROW(load_classes(path), Error) << text;
  }
  // As editors of Windows save it.
  write_file(path, test::bytes_of("\xef\xbb\xbf"
                                  "cat\r\ndog\r\n"));
  EXPECT_THAT(load_classes(path), ElementsAre("cat", "dog"));
  write_file(path, test::bytes_of("cat\ndog\r\ncow\n"));
  EXPECT_THAT(test::error_of([&] { load_classes(path); }),
              HasSubstr("line 2: expected a carriage"));
}

TEST_F(ImageFolderTest, IdentityIsThatOfClassesAndFiles) {
  image("a/1.jpg");
  image("b/1.jpg");
  image("b/2.jpg");
  const std::string first = open().identity();
  EXPECT_EQ(open().identity(), first);
  std::vector<std::string> seen = {first};
  const auto expect_new = [&] {
    const std::string now = open().identity();
    EXPECT_THAT(seen, testing::Not(testing::Contains(now)));
    seen.push_back(now);
  };
  fs::rename(root_ / "b", root_ / "c");
  expect_new();
  fs::rename(root_ / "c/2.jpg", root_ / "c/3.jpg");
  expect_new();
  fs::rename(root_ / "c/3.jpg", root_ / "a/3.jpg");
  expect_new();
  image("a/0.jpg");
  expect_new();
}

TEST_F(ImageFolderTest, FoldersWithoutImagesAreNamed) {
  EXPECT_THAT(failure(), HasSubstr("expected a folder for each class in " + root_.path()));
  EXPECT_THAT(test::error_of([&] { ImageFolder(root_ / "none", kSmall); }), HasSubstr("none"));
  folder("a");
  EXPECT_THAT(failure({.empty_classes = EmptyClass::keep}), HasSubstr("expected images in"));
  EXPECT_THROW(ImageFolder(root_.path(), {}), Error);  // a size must be given
}

TEST_F(ImageFolderTest, BadFilesFollowThePolicy) {
  image("a/0.jpg");
  write_file(root_ / "a/1.jpg", {});
  auto cut = make_jpeg(smooth_picture(40, 40));
  cut.resize(cut.size() - 20);
  write_file(root_ / "a/2.jpg", cut);
  write_file(root_ / "a/3.png", test::bytes_of("<html>not found</html>"));
  fs::create_symlink("gone.jpg", root_ / "a/4.jpg");
  image("a/5.jpg");
  const std::vector<int64_t> all = {0, 1, 2, 3, 4, 5};

  const ImageFolder strict = open();
  ASSERT_EQ(strict.size(), 6);
  for (const auto& [index, reason] :
       std::vector<std::pair<int64_t, std::string>>{{1, "an empty file"},
                                                    {2, "the end of the file"},
                                                    {3, "other data"},
                                                    {4, "No such file"}}) {
    const std::vector<int64_t> one = {index};
    const std::string error = test::error_of([&] { strict.gather(one, 1, {}); });
    EXPECT_THAT(error, HasSubstr("sample " + std::to_string(index) + ", " + strict.path(index)));
    EXPECT_THAT(error, HasSubstr(reason));
  }
  EXPECT_THROW(strict.gather(all, 6, {}), Error);

  const ImageFolder skipping = open({.bad_files = BadFile::skip});
  const Batch skipped = skipping.gather(all, 6, {});
  EXPECT_THAT(skipped.targets.to_vector<int64_t>(),
              ElementsAre(0, kNoTarget, kNoTarget, kNoTarget, kNoTarget, 0));
  const ImageFolder zeroing = open({.bad_files = BadFile::zero});
  const Batch zeroed = zeroing.gather(all, 6, {});
  EXPECT_THAT(zeroed.targets.to_vector<int64_t>(), ElementsAre(0, 0, 0, 0, 0, 0));
  for (const Batch* batch : {&skipped, &zeroed}) {
    const float* values = batch->inputs.data<float>();
    for (int64_t i = 192; i < 5 * 192; ++i)
      EXPECT_EQ(values[i], 0.0f);
    EXPECT_GT(values[0], 0);
    EXPECT_GT(values[5 * 192], 0);
  }
  zeroing.gather(all, 6, {.seed = 0, .epoch = 1});
  ASSERT_EQ(zeroing.failures().size(), 4u);  // each counts once
  EXPECT_EQ(zeroing.failures()[1].index, 2);
  EXPECT_THAT(zeroing.failures()[1].reason, HasSubstr("a/2.jpg at byte"));

  const ImageFolder limited = open({.bad_files = BadFile::skip, .bad_limit = 3});
  EXPECT_THAT(test::error_of([&] { limited.gather(all, 6, {}); }), HasSubstr("at most 3 samples"));
  EXPECT_EQ(bad_file_from_name("zero"), BadFile::zero);
  EXPECT_THROW(bad_file_from_name("ignore"), Error);
}

// What says nothing about the file ends the run; a file that no image needs is a bad one.
TEST_F(ImageFolderTest, RunningOutIsNotABadFile) {
  image("a/0.jpg");
  image("a/1.jpg");
  fs::resize_file(root_ / "a/1.jpg", 100 << 20);  // a hole, for the most part
  const ImageFolder skipping = open({.bad_files = BadFile::skip, .max_pixels = 1 << 20});
  const std::vector<int64_t> both = {0, 1};
  EXPECT_THAT(skipping.gather(both, 2, {}).targets.to_vector<int64_t>(), ElementsAre(0, kNoTarget));
  EXPECT_THAT(skipping.failures()[0].reason, HasSubstr("bytes, got 104857600"));

  const std::vector<int64_t> sound = {0};
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 0;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const std::string error = test::error_of([&] { skipping.gather(sound, 1, {}); });
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(error, HasSubstr("Too many open files"));
  EXPECT_EQ(skipping.failures().size(), 1u);
}

// A folder with some of everything, whose pixels must not depend on who gathers them.
class ImagePixels : public ImageFolderTest {
 protected:
  void SetUp() override {
    for (int i = 0; i < 22; ++i) {
      const std::string path =
          std::string(i % 2 ? "cat/" : "dog/") + std::to_string(i) + (i % 5 == 0 ? ".png" : ".jpg");
      image(path, 30 + i * 5, 90 - i * 3, i % 5 == 0);
    }
    options_ = {.height = 16,
                .width = 16,
                .crop = Crop::random,
                .mean = {0.485, 0.456, 0.406},
                .stddev = {0.229, 0.224, 0.225},
                .flip = true,
                .rotate = 5,
                .brightness = 0.2,
                .erase = 0.25};
  }
  // Two epochs from `loader`: pixels and targets of the rows, batch after batch.
  static std::vector<float> all(Loader& loader, std::vector<RowRange> = {}) {
    std::vector<float> values;
    for (int epoch = 0; epoch < 2; ++epoch) {
      while (const auto batch = loader.next())
        append(*batch, values);
    }
    return values;
  }
  static void append(const Batch& batch, std::vector<float>& values) {
    for (int64_t row = 0; row < batch.inputs.size(0); ++row) {
      const float* from = batch.inputs.data<float>() + row * 768;
      values.insert(values.end(), from, from + 768);
      values.push_back(static_cast<float>(batch.targets.data<int64_t>()[row]));
    }
  }
  ImageOptions options_;
};

TEST_F(ImagePixels, DoNotDependOnThreadsOrRanks) {
  const ImageFolder images(root_.path(), options_);
  Loader one(images, {.batch = 8, .seed = 4});
  Loader four(images, {.batch = 8, .seed = 4, .prefetch = 3, .threads = 4});
  Loader here(images, {.batch = 8, .seed = 4, .prefetch = 0});
  const auto expected = all(one);
  EXPECT_EQ(expected.size(), 2u * 24 * 769);
  EXPECT_EQ(all(four), expected);
  EXPECT_EQ(all(here), expected);

  // Two ranks, each with half of the rows of every batch.
  Loader a(images, {.batch = 8, .seed = 4, .rows = {{0, 4}}, .threads = 2});
  Loader b(images, {.batch = 8, .seed = 4, .rows = {{4, 4}}});
  std::vector<float> together;
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (;;) {
      const auto part_a = a.next();
      const auto part_b = b.next();
      ASSERT_EQ(part_a.has_value(), part_b.has_value());
      if (!part_a) break;
      append(*part_a, together);
      append(*part_b, together);
    }
  }
  EXPECT_EQ(together, expected);
}

TEST_F(ImagePixels, GoOnFromASavedPosition) {
  const ImageFolder images(root_.path(), options_);
  Loader loader(images, {.batch = 8, .seed = 4, .threads = 2});
  for (int i = 0; i < 4; ++i)
    loader.next();  // the third of the second epoch is next, the first epoch having ended
  const LoaderState state = loader.state();
  Loader again(images, {.batch = 8, .seed = 4});
  again.seek(state);
  std::vector<float> a;
  std::vector<float> b;
  append(*loader.next(), a);
  append(*again.next(), b);
  EXPECT_EQ(a, b);
}

TEST_F(ImagePixels, TakeNoMoreMemoryEpochAfterEpoch) {
  const ImageFolder images(root_.path(), options_);
  Ledger ledger;
  const LedgerScope scope(ledger);
  {
    Loader loader(images, {.batch = 8, .threads = 2});
    for (int epoch = 0; epoch < 10; ++epoch) {
      while (loader.next()) {
      }
    }
  }
  EXPECT_LE(ledger.peak(Category::data), 4 * 8 * (768 * 4 + 8));  // see LoaderOptions::prefetch
  EXPECT_EQ(ledger.current_total(), 0);
}

TEST_F(ImagePixels, DecodingAPartGivesThePixelsOfDecodingTheWhole) {
  const ImageFolder images(root_.path(), {.height = 24, .width = 24, .crop = Crop::random});
  detail::ImageReader reader;
  detail::TransformScratch scratch;
  for (int64_t i = 0; i < images.size(); ++i) {
    const auto bytes = detail::read_file("test", images.path(i));
    const Tensor whole = decode_image(bytes, "whole");
    const int64_t height = whole.size(1);
    const int64_t width = whole.size(2);
    const detail::SampleTransform transform({.height = 24, .width = 24, .crop = Crop::random}, 3);
    detail::Draws draws({9, 0}, i);
    const detail::Cut cut = transform.cut(height, width, draws);
    std::vector<float> expected(24 * 24 * 3);
    transform.run(detail::view_of_cut(whole.data<uint8_t>(), width * 3, 3, cut), draws, scratch,
                  expected.data());
    const std::vector<int64_t> one = {i};
    const Tensor got = images.gather(one, 1, {.seed = 9, .epoch = 0}).inputs;
    // Larger cuts are decoded at half the size, which filters otherwise.
    const bool full = cut.box.width < 48 || cut.box.height < 48;
    for (size_t p = 0; p < expected.size(); ++p)
      ASSERT_NEAR(got.data<float>()[p], expected[p], full ? 1e-6 : 0.06) << i;
  }
}

TEST_F(ImagePixels, PackedOnesAreTheDecodedOnesRounded) {
  const std::string file = root_ / "packed";
  set_num_threads(2);
  const PackResult packed = pack_folder(root_.path(), file, {.height = 20, .width = 24});
  set_num_threads(1);
  EXPECT_EQ(packed.images, 22);
  EXPECT_EQ(packed.classes, 2);
  const PackedImages mapped(file);
  EXPECT_THAT(mapped.classes(), ElementsAre("cat", "dog"));
  EXPECT_THAT(mapped.damage(), testing::IsEmpty());
  const ImageFolder folder(root_.path(), {.height = 20, .width = 24, .crop = Crop::centre});
  const Images images = mapped.images();
  EXPECT_EQ(images.sample_shape(), Shape({3, 20, 24}));
  std::vector<int64_t> all(22);
  for (size_t i = 0; i < 22; ++i)
    all[i] = static_cast<int64_t>(i);
  const Batch a = folder.gather(all, 22, {});
  const Batch b = images.gather(all, 22, {});
  EXPECT_EQ(a.targets.to_vector<int64_t>(), b.targets.to_vector<int64_t>());
  for (int64_t i = 0; i < a.inputs.numel(); ++i)
    ASSERT_NEAR(a.inputs.data<float>()[i], b.inputs.data<float>()[i], 0.51 / 255);
}

TEST_F(ImagePixels, DamagedPackedFilesAreRefused) {
  const std::string file = root_ / "packed";
  write_file(root_ / "cat/empty.jpg", {});
  EXPECT_THROW(pack_folder(root_.path(), file), Error);
  EXPECT_FALSE(fs::exists(file));
  const auto left = [&](BadFile policy) {
    return pack_folder(root_.path(), file,
                       {.height = 8, .width = 8, .folder = {.bad_files = policy}});
  };
  EXPECT_EQ(left(BadFile::zero).images, 23);
  const PackResult skipped = left(BadFile::skip);
  EXPECT_EQ(skipped.images, 22);
  ASSERT_EQ(skipped.failures.size(), 1u);
  EXPECT_THAT(skipped.failures[0], HasSubstr("cat/empty.jpg"));
  EXPECT_EQ(std::distance(fs::directory_iterator(root_.path()), {}), 3);  // nothing temporary

  std::ifstream stream(file, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(stream)), {});
  const auto with = [&](size_t at) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 4);
    write_file(file, test::bytes_of(bytes));
  };
  for (const size_t at : {0, 8, 20, 30, 60}) {
    with(at);
    EXPECT_THAT(test::error_of([&] { PackedImages{file}; }), HasSubstr(file)) << at;
  }
  with(whole.size() - 1);
  EXPECT_THAT(test::error_of([&] { PackedImages{file}; }), HasSubstr("tables"));
  with(4096 + 192 * 7 + 5);  // one pixel
  EXPECT_THAT(PackedImages(file).damage(), ElementsAre(7));
  write_file(file, test::bytes_of(whole.substr(0, whole.size() - 1)));
  EXPECT_THAT(test::error_of([&] { PackedImages{file}; }), HasSubstr("expected 22 images"));
  write_file(file, {});
  EXPECT_THROW(PackedImages{file}, Error);
  EXPECT_THROW(PackedImages{root_.path()}, Error);
}

TEST_F(ImagePixels, MixingBlendsTargetsAsItBlendsPixels) {
  const ImageFolder images(root_.path(), {.height = 16, .width = 16});
  for (const bool cut : {false, true}) {
    const Mixing mixing(
        images,
        {.classes = 2, .mixup = cut ? 0 : 0.4, .cutmix = cut ? 1.0 : 0, .label_smoothing = 0.1});
    double own = 0;
    for (int64_t i = 0; i < images.size(); ++i) {
      const std::vector<int64_t> one = {i};
      const Batch plain = images.gather(one, 1, {5, 0});
      const Batch mixed = mixing.gather(one, 2, {5, 0});
      const float* shares = mixed.targets.data<float>();
      EXPECT_NEAR(shares[0] + shares[1], 1, 1e-6);
      EXPECT_EQ(shares[2] + shares[3], 0);
      EXPECT_GE(shares[0], 0.05f - 1e-6f);
      // The partner's share, from the pixels: found among all others.
      const float* a = plain.inputs.data<float>();
      const float* m = mixed.inputs.data<float>();
      bool found = false;
      for (int64_t other = 0; other < images.size() && !found; ++other) {
        const std::vector<int64_t> that = {other};
        const Batch partner = images.gather(that, 1, {5, 0});
        const float* b = partner.inputs.data<float>();
        const bool same_class = images.label(i) == images.label(other);
        const float share = shares[images.label(i)];
        const double lambda = same_class ? -1 : (share - 0.05) / 0.9;
        bool fits = true;
        int64_t changed = 0;
        double weight = lambda;
        for (int64_t p = 0; p < 768 && fits; ++p) {
          if (cut) {
            fits = m[p] == a[p] || m[p] == b[p];
            changed += m[p] != a[p];
          } else if (same_class) {
            if (weight < 0 && std::abs(a[p] - b[p]) > 0.05) weight = (m[p] - b[p]) / (a[p] - b[p]);
            fits = weight < 0 || std::abs(weight * a[p] + (1 - weight) * b[p] - m[p]) < 0.01;
          } else {
            fits = std::abs(lambda * a[p] + (1 - lambda) * b[p] - m[p]) < 1e-3;
          }
        }
        if (cut && fits && !same_class)
          fits = std::abs(static_cast<double>(changed) / 768 - (1 - lambda)) < 0.05;
        found = fits;
      }
      EXPECT_TRUE(found) << i << (cut ? " cut" : " blended");
      own += static_cast<double>(shares[images.label(i)]);
    }
    EXPECT_GT(own, 0.5 * 22);
  }
  EXPECT_THROW(Mixing(images, {.classes = 2}), Error);
  EXPECT_THROW(Mixing(images, {.classes = 0, .mixup = 1}), Error);
  const Mixing few(images, {.classes = 1, .mixup = 1});
  const std::vector<int64_t> dogs = {20, 21};
  EXPECT_THROW(few.gather(dogs, 2, {}), Error);
}

// Boxes are cut out of memory: of samples that are stored otherwise they would be other boxes.
TEST(Mixing, RefusesImagesStoredByPlanes) {
  struct Planes final : Dataset {
    int64_t size() const override { return 4; }
    Shape sample_shape() const override { return {3, 4, 4}; }
    Batch gather(std::span<const int64_t> indices, int64_t rows, const EpochKey&) const override {
      const auto count = static_cast<int64_t>(indices.size());
      return {zeros({rows, 3, 4, 4}), zeros({rows}, {.dtype = i64}), count};
    }
  };
  const std::vector<int64_t> some = {0, 1};
  const Planes planes;
  const Mixing refused(planes, {.classes = 2, .cutmix = 1});
  EXPECT_THAT(test::error_of([&] { refused.gather(some, 2, {}); }), HasSubstr("stored N, H, W, C"));
  const Synthetic synthetic(4, {3, 4, 4}, 2);
  const Mixing mixed(synthetic, {.classes = 2, .cutmix = 1});
  EXPECT_TRUE(mixed.gather(some, 2, {}).inputs.is_channels_last());
  EXPECT_EQ(mixed.identity(), synthetic.identity());
}

TEST_F(ImagePixels, MixingDoesNotDependOnTheRestOfTheBatch) {
  const ImageFolder images(root_.path(), options_);
  const Mixing mixing(images, {.classes = 2, .mixup = 0.2, .cutmix = 1, .probability = 0.8});
  const std::vector<int64_t> many = {3, 9, 14, 0, 21};
  const Batch all = mixing.gather(many, 5, {5, 1});
  for (size_t row = 0; row < many.size(); ++row) {
    const std::vector<int64_t> one = {many[row]};
    const Batch alone = mixing.gather(one, 1, {5, 1});
    const float* a = all.inputs.data<float>() + static_cast<int64_t>(row) * 768;
    EXPECT_TRUE(std::equal(a, a + 768, alone.inputs.data<float>()));
    EXPECT_EQ(all.targets.data<float>()[2 * row], alone.targets.data<float>()[0]);
  }
}

}  // namespace
}  // namespace weft::data
