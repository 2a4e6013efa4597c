#include "apps/weft/data.h"

#include "core/ledger.h"
#include "core/parallel.h"
#include "data/packed.h"

#include <unistd.h>

#include <cstdio>

namespace weft::app {

DataCommand::DataCommand(CommandLine& weft)
    : line_(weft.command("data", "Pack folders of images into one file that is mapped, not read.")),
      pack_(&line_.command(
          "pack",
          "Decode every image of DIR (a folder a class), cut and resize it, and write all of them, "
          "their classes and checksums to the file OUT: whole or not at all.")),
      check_(&line_.command(
          "check", "What a packed file holds; reads every byte (exit code 1 if any is damaged).")) {
  pack_->add_argument("DIR", folder_, "folder with a folder for each class");
  pack_->add_argument("OUT", file_, "file to write");
  pack_->add("--size", size_, "pixels a side", 1, 1 << 15);
  pack_->add("--height", height_, "pixels of height, 0: --size", 0, 1 << 15);
  pack_->add("--width", width_, "pixels of width, 0: --size", 0, 1 << 15);
  pack_->add("--channels", channels_, "3 for colours, 1 for grey", 1, 3);
  pack_->add_choice("--crop", crop_, {"centre", "whole"},
                    "the largest centred part of the new shape, or all, squeezed into it");
  pack_->add_choice("--bad-files", bad_files_, {"fail", "skip", "zero"},
                    "files that cannot be decoded: stop, leave out, or make black");
  pack_->add("--bad-limit", bad_limit_, "how many of them, of --bad-files skip and zero", 0);
  pack_->add_choice("--empty-classes", empty_classes_, {"fail", "keep"},
                    "class folders without images: stop, or keep their number");
  pack_->add("--classes", classes_,
             "file with the classes in their order, a line each (for validation images: those of "
             "training); empty: the folders, sorted");
  pack_->add("--threads", threads_, "threads to decode with, 0: all processors", 0, 4096);
  pack_->add_switch("--quiet", quiet_, "no progress");
  check_->add_argument("FILE", file_, "packed file");
}

int DataCommand::run() {
  return pack_->chosen() ? pack() : check();
}

int DataCommand::pack() const {
  if (channels_ == 2) return pack_->reject("--channels: expected 1 or 3, got 2");
  if (pack_->given("--bad-limit") && bad_files_ == "fail")
    return pack_->reject("--bad-limit: expected --bad-files skip or zero beside it, got fail");
  if (threads_ > 0) set_num_threads(static_cast<int>(threads_));
  data::PackOptions options{
      .height = height_ > 0 ? height_ : size_,
      .width = width_ > 0 ? width_ : size_,
      .crop = crop_ == "whole" ? data::Crop::whole : data::Crop::centre,
      .folder = {.channels = channels_,
                 .bad_files = data::bad_file_from_name(bad_files_),
                 .bad_limit = bad_limit_,
                 .empty_classes =
                     empty_classes_ == "keep" ? data::EmptyClass::keep : data::EmptyClass::fail}};
  if (!classes_.empty()) options.folder.classes = data::load_classes(classes_);
  const bool shows = !quiet_ && isatty(STDERR_FILENO) == 1;
  if (shows) {
    options.progress = [](int64_t done, int64_t all) {
      std::fprintf(stderr, "\r%lld of %lld images", static_cast<long long>(done),
                   static_cast<long long>(all));
      if (done == all) std::fprintf(stderr, "\n");
    };
  }
  const data::PackResult result = data::pack_folder(folder_, file_, options);
  for (const std::string& failure : result.failures)
    std::fprintf(stderr, "weft: %s: %s\n", bad_files_ == "skip" ? "left out" : "black",
                 failure.c_str());
  std::printf("%s: %lld images of %lld × %lld × %lld, %lld classes\n", file_.c_str(),
              static_cast<long long>(result.images), static_cast<long long>(options.height),
              static_cast<long long>(options.width), static_cast<long long>(channels_),
              static_cast<long long>(result.classes));
  return 0;
}

int DataCommand::check() const {
  const data::PackedImages packed(file_);
  const Shape& shape = packed.pixels().shape();
  std::printf("%s: %lld images of %lld × %lld × %lld (%s), %zu classes\n", file_.c_str(),
              static_cast<long long>(shape[0]), static_cast<long long>(shape[2]),
              static_cast<long long>(shape[3]), static_cast<long long>(shape[1]),
              format_bytes(packed.pixels().bytes()).c_str(), packed.classes().size());
  std::vector<int64_t> counts(packed.classes().size());
  for (const int64_t label : packed.labels().to_vector<int64_t>())
    ++counts[static_cast<size_t>(label)];
  for (size_t i = 0; i < counts.size(); ++i)
    std::printf("%8zu %10lld  %s\n", i, static_cast<long long>(counts[i]),
                packed.classes()[i].c_str());
  const std::vector<int64_t> damaged = packed.damage();
  for (const int64_t image : damaged)
    std::printf("damaged: image %lld\n", static_cast<long long>(image));
  return damaged.empty() ? 0 : 1;
}

}  // namespace weft::app
