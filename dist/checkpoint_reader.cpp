#include "dist/checkpoint_reader.h"

#include "core/crc32c.h"
#include "core/parallel.h"
#include "dist/detail/checkpoint_pieces.h"

#include <algorithm>
#include <cstring>

namespace weft::dist {

// What one CRC is for, and which part of it goes where.
struct CheckpointReader::Block {
  const StoredTensor* tensor = nullptr;
  const StoredInterval* interval = nullptr;
  ReadFile* file = nullptr;  // once it is open
  size_t index = 0;          // in the interval
  int64_t offset = 0;        // bytes from the file's beginning
  int64_t bytes = 0;         // of the block
  int64_t skip = 0;          // bytes of it before those that are wanted
  int64_t wanted = 0;        // bytes
  std::byte* to = nullptr;
};

namespace {

// Small blocks are given to threads in lots of so many bytes.
constexpr int64_t kLot = int64_t{1} << 20;

// Files that are open at a time: several, so that threads have something to do where files are
// small, and far from what a process may have.
constexpr size_t kOpenFiles = 16;

// What a read met, as the checkpoint's reader sees it: a part that is not there is damage.
[[noreturn]] void fail_read(const std::string& where, const StorageError& error) {
  if (error.missing()) throw DamagedCheckpoint(where + error.what());
  throw StorageError(error);
}

}  // namespace

CheckpointReader::CheckpointReader(std::string path, Ref<CheckpointStorage> storage)
    : path_(std::move(path)),
      storage_(std::move(storage)),
      manifest_(read_manifest(*storage_, path_)) {}

CheckpointReader::CheckpointReader(std::string path, Ref<CheckpointStorage> storage,
                                   Manifest manifest)
    : path_(std::move(path)), storage_(std::move(storage)), manifest_(std::move(manifest)) {}

Ref<ReadFile> CheckpointReader::open(size_t index) const {
  const StoredFile& stored = manifest_.files[index];
  const std::string path = path_ + "/" + stored.name;
  try {
    const Ref<ReadFile> file = storage_->open(path);
    if (file->bytes() == stored.bytes) return file;
    throw DamagedCheckpoint(concat(
        {"[checkpoint] ", path, ": expected ", stored.bytes, " bytes, got ", file->bytes()}));
  } catch (const StorageError& error) {
    fail_read("", error);
  }
}

void CheckpointReader::check_header(size_t index) const {
  const StoredFile& stored = manifest_.files[index];
  std::vector<std::byte> header(static_cast<size_t>(stored.head_bytes));
  const Ref<ReadFile> file = open(index);
  try {
    file->read(header.data(), 0, stored.head_bytes);
  } catch (const StorageError& error) {
    fail_read("", error);
  }
  if (crc32c(header.data(), header.size()) != stored.head_crc) {
    throw DamagedCheckpoint(
        concat({"[checkpoint] ", path_, "/", stored.name,
                ": expected the header that was saved, got other bytes (its CRC32C differs)"}));
  }
}

void CheckpointReader::check_files(int part, int parts) {
  for (size_t i = static_cast<size_t>(part); i < manifest_.files.size();
       i += static_cast<size_t>(parts))
    check_header(i);
}

void CheckpointReader::read_block(const Block& block, std::vector<std::byte>& memory) const {
  // A block that is wanted as a whole goes where it is wanted; the rest of others is dropped.
  const bool direct = block.wanted == block.bytes;
  if (!direct && std::ssize(memory) < block.bytes) memory.resize(static_cast<size_t>(block.bytes));
  std::byte* const at = direct ? block.to : memory.data();
  const auto where = [&] {
    const int64_t first = block.interval->begin + static_cast<int64_t>(block.index) *
                                                      manifest_.block_bytes /
                                                      size_of(block.tensor->dtype);
    return concat({"[checkpoint] ", path_, "/",
                   manifest_.files[static_cast<size_t>(block.interval->file)].name, ": tensor ",
                   block.tensor->name, ", elements from ", first, " on: expected "});
  };
  try {
    block.file->read(at, block.offset, block.bytes);
  } catch (const StorageError& error) {
    fail_read(where() + "to read them, got ", error);
  }
  const uint32_t crc = crc32c(at, static_cast<size_t>(block.bytes));
  if (crc != block.interval->crcs[block.index])
    throw DamagedCheckpoint(where() + "what was saved, got other bytes (their CRC32C differs)");
  if (!direct) std::memcpy(block.to, at + block.skip, static_cast<size_t>(block.wanted));
}

void CheckpointReader::read(std::span<const Request> requests) {
  std::vector<Block> blocks;
  for (const Request& request : requests) {
    const StoredTensor& tensor = *request.tensor;
    const int64_t width = size_of(tensor.dtype);
    WEFT_CHECK(request.begin >= 0 && request.begin <= request.end && request.end <= tensor.numel(),
               "checkpoint", "expected elements in [0, ", tensor.numel(), ") of ", tensor.name,
               ", got [", request.begin, ", ", request.end, ")");
    for (const StoredInterval& interval : tensor.intervals) {
      const int64_t begin = std::max(request.begin, interval.begin);
      const int64_t end = std::min(request.end, interval.end);
      if (begin >= end) continue;
      const int64_t total = (interval.end - interval.begin) * width;
      int64_t from = (begin - interval.begin) * width;  // bytes of the interval
      const int64_t until = (end - interval.begin) * width;
      while (from < until) {
        Block block;
        block.tensor = &tensor;
        block.interval = &interval;
        block.index = static_cast<size_t>(from / manifest_.block_bytes);
        const int64_t start = static_cast<int64_t>(block.index) * manifest_.block_bytes;
        block.offset = interval.offset + start;
        block.bytes = std::min(manifest_.block_bytes, total - start);
        block.skip = from - start;
        block.wanted = std::min(until, start + block.bytes) - from;
        block.to =
            request.to + (begin - request.begin) * width + from - (begin - interval.begin) * width;
        from += block.wanted;
        blocks.push_back(block);
      }
    }
  }
  // File by file, so that each is opened once.
  std::stable_sort(blocks.begin(), blocks.end(), [](const Block& a, const Block& b) {
    return a.interval->file < b.interval->file;
  });
  for (size_t begin = 0; begin < blocks.size();) {
    std::vector<Ref<ReadFile>> files;
    size_t end = begin;
    for (; end < blocks.size(); ++end) {
      const int file = blocks[end].interval->file;
      if (end == begin || file != blocks[end - 1].interval->file) {
        if (files.size() == kOpenFiles) break;
        files.push_back(open(static_cast<size_t>(file)));
      }
      blocks[end].file = files.back().get();
    }
    read_blocks(std::span(blocks).subspan(begin, end - begin));
    begin = end;
  }
}

void CheckpointReader::read_blocks(std::span<const Block> blocks) const {
  // Lots of blocks whose bytes are worth a thread's while.
  std::vector<size_t> lots = {0};
  int64_t bytes = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    bytes += blocks[i].bytes;
    if (bytes < kLot && i + 1 < blocks.size()) continue;
    lots.push_back(i + 1);
    bytes = 0;
  }
  parallel_for(0, static_cast<int64_t>(lots.size()) - 1, 1, [&](int64_t first, int64_t last) {
    std::vector<std::byte> memory;
    for (size_t i = lots[static_cast<size_t>(first)]; i < lots[static_cast<size_t>(last)]; ++i)
      read_block(blocks[i], memory);
  });
}

Tensor CheckpointReader::read(const StoredTensor& tensor) {
  const Tensor result = empty_strided(tensor.shape, detail::strides_of(tensor.shape, tensor.order),
                                      {.dtype = tensor.dtype});
  const Request request{&tensor, 0, tensor.numel(), result.raw()};
  if (tensor.numel() > 0) read({&request, 1});
  return result;
}

std::vector<std::string> CheckpointReader::verify() {
  std::vector<std::string> damage;
  std::vector<bool> there(manifest_.files.size(), true);
  for (size_t i = 0; i < manifest_.files.size(); ++i) {
    try {
      open(i);
    } catch (const DamagedCheckpoint& error) {
      there[i] = false;
      damage.push_back(error.what());
      continue;
    }
    try {
      check_header(i);
    } catch (const DamagedCheckpoint& error) {
      damage.push_back(error.what());
    }
  }
  std::vector<std::byte> memory;
  for (const StoredTensor& tensor : manifest_.tensors) {
    const int64_t width = size_of(tensor.dtype);
    for (const StoredInterval& interval : tensor.intervals) {
      const auto index = static_cast<size_t>(interval.file);
      if (!there[index]) {
        damage.push_back(concat({"[checkpoint] ", path_, "/", manifest_.files[index].name,
                                 ": tensor ", tensor.name, ": elements ", interval.begin, " to ",
                                 interval.end, " are lost with the file"}));
        continue;
      }
      for (int64_t begin = interval.begin; begin < interval.end;) {
        const int64_t end =
            std::min(interval.end, begin + std::max<int64_t>(manifest_.block_bytes / width, 1));
        memory.resize(static_cast<size_t>((end - begin) * width));
        const Request request{&tensor, begin, end, memory.data()};
        try {
          read({&request, 1});
        } catch (const DamagedCheckpoint& error) {
          damage.push_back(error.what());
        }
        begin = end;
      }
    }
  }
  return damage;
}

}  // namespace weft::dist
