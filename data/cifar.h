// CIFAR-10 and CIFAR-100 in their binary form: records of one label (CIFAR-100: coarse, then fine)
// and 32 × 32 red, then green, then blue bytes (A. Krizhevsky, "Learning multiple layers of
// features from tiny images", 2009).
#pragma once

#include "data/images.h"

#include <span>
#include <string>

namespace weft::data {

enum class Cifar : uint8_t { ten, hundred, hundred_coarse };

// u8 [N, 3, 32, 32] stored N, H, W, C, and u8 [N].
struct CifarRecords {
  Tensor images;
  Tensor labels;
};

// Whole records of one file, at least one; throws an Error naming `name`, record and byte where the
// size is none of theirs or a label is out of range.
CifarRecords parse_cifar(std::span<const std::byte> bytes, const std::string& name, Cifar kind);

// `folder` holds data_batch_1.bin … data_batch_5.bin and test_batch.bin, or train.bin and test.bin,
// or the folder cifar-10-batches-bin or cifar-100-binary of the archive does.
Images read_cifar(const std::string& folder, Cifar kind, bool train, ImageOptions options = {});

}  // namespace weft::data
