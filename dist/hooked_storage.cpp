// A storage behind a hook: see dist/storage.h.
#include "dist/storage.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace weft::dist {
namespace {

void turn_bit(void* bytes, int64_t count, int64_t bit) {
  if (bit < 0 || bit >= count * 8) return;
  auto& byte = static_cast<std::byte*>(bytes)[bit / 8];
  byte ^= std::byte{1} << (bit % 8);
}

// Asks the hook about every operation.
class Hook {
 public:
  explicit Hook(StorageHook hook) : hook_(std::move(hook)) {}

  StorageFault ask(StorageAction action, const std::string& path, int64_t offset = 0,
                   int64_t bytes = 0) const {
    return hook_({action, path, offset, bytes});
  }
  // Throws what the hook wants to fail.
  StorageFault pass(StorageAction action, const std::string& path, int64_t offset = 0,
                    int64_t bytes = 0) const {
    const StorageFault fault = ask(action, path, offset, bytes);
    if (fault.error != 0) throw StorageError(action, path, std::strerror(fault.error), fault.error);
    return fault;
  }

 private:
  StorageHook hook_;
};

class HookedWriteFile final : public WriteFile {
 public:
  HookedWriteFile(Ref<WriteFile> file, std::string path, Hook hook)
      : file_(std::move(file)), path_(std::move(path)), hook_(std::move(hook)) {}

  void write(const void* bytes, int64_t count) override {
    const StorageFault fault = hook_.ask(StorageAction::write, path_, offset_, count);
    if (fault.error != 0) {
      const int64_t written = std::clamp<int64_t>(fault.written, 0, count);
      file_->write(bytes, written);
      throw StorageError(StorageAction::write, path_,
                         concat({written, " of ", count, " bytes: ", std::strerror(fault.error)}),
                         fault.error);
    }
    offset_ += count;
    if (fault.flip_bit < 0) return file_->write(bytes, count);
    std::vector<std::byte> damaged(static_cast<size_t>(count));
    std::memcpy(damaged.data(), bytes, damaged.size());
    turn_bit(damaged.data(), count, fault.flip_bit);
    file_->write(damaged.data(), count);
  }
  void sync() override {
    hook_.pass(StorageAction::sync, path_);
    file_->sync();
  }
  void close() override {
    hook_.pass(StorageAction::close, path_);
    file_->close();
  }

 private:
  Ref<WriteFile> file_;
  std::string path_;
  Hook hook_;
  int64_t offset_ = 0;
};

class HookedReadFile final : public ReadFile {
 public:
  HookedReadFile(Ref<ReadFile> file, std::string path, Hook hook)
      : file_(std::move(file)), path_(std::move(path)), hook_(std::move(hook)) {}

  int64_t bytes() const override { return file_->bytes(); }
  void read(void* to, int64_t offset, int64_t count) override {
    const StorageFault fault = hook_.pass(StorageAction::read, path_, offset, count);
    file_->read(to, offset, count);
    turn_bit(to, count, fault.flip_bit);
  }

 private:
  Ref<ReadFile> file_;
  std::string path_;
  Hook hook_;
};

class HookedStorage final : public CheckpointStorage {
 public:
  HookedStorage(Ref<CheckpointStorage> storage, StorageHook hook)
      : storage_(std::move(storage)), hook_(std::move(hook)) {}

  void make_directory(const std::string& path) override {
    hook_.pass(StorageAction::make_directory, path);
    storage_->make_directory(path);
  }
  Ref<WriteFile> create(const std::string& path) override {
    hook_.pass(StorageAction::create, path);
    return make_ref<HookedWriteFile>(storage_->create(path), path, hook_);
  }
  Ref<ReadFile> open(const std::string& path) override {
    hook_.pass(StorageAction::open, path);
    return make_ref<HookedReadFile>(storage_->open(path), path, hook_);
  }
  void sync_directory(const std::string& path) override {
    hook_.pass(StorageAction::sync_directory, path);
    storage_->sync_directory(path);
  }
  void rename(const std::string& from, const std::string& to) override {
    hook_.pass(StorageAction::rename, from);
    storage_->rename(from, to);
  }
  void exchange(const std::string& a, const std::string& b) override {
    hook_.pass(StorageAction::exchange, a);
    storage_->exchange(a, b);
  }
  void remove_file(const std::string& path) override {
    hook_.pass(StorageAction::remove_file, path);
    storage_->remove_file(path);
  }
  void remove_directory(const std::string& path) override {
    hook_.pass(StorageAction::remove_directory, path);
    storage_->remove_directory(path);
  }
  std::vector<std::string> list(const std::string& path) override {
    hook_.pass(StorageAction::list, path);
    return storage_->list(path);
  }

 private:
  Ref<CheckpointStorage> storage_;
  Hook hook_;
};

}  // namespace

Ref<CheckpointStorage> hooked_storage(Ref<CheckpointStorage> storage, StorageHook hook) {
  return make_ref<HookedStorage>(std::move(storage), std::move(hook));
}

}  // namespace weft::dist
