#include "dist/storage.h"

#include "dist/detail/file_descriptor.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace weft::dist {
namespace {

constexpr std::array<const char*, 13> kActionNames = {
    "make_directory", "create", "write",    "sync",        "close",
    "sync_directory", "rename", "exchange", "remove_file", "remove_directory",
    "open",           "read",   "list"};

[[noreturn]] void fail(StorageAction action, const std::string& path, std::string got = {}) {
  const int code = errno;
  if (!got.empty()) got += ": ";
  throw StorageError(action, path, got + std::strerror(code), code);
}

class LocalWriteFile final : public WriteFile {
 public:
  LocalWriteFile(std::string path, int descriptor)
      : path_(std::move(path)), descriptor_(descriptor) {}

  void write(const void* bytes, int64_t count) override {
    const auto* at = static_cast<const char*>(bytes);
    int64_t left = count;
    while (left > 0) {
      const ssize_t written = ::write(descriptor_.get(), at, static_cast<size_t>(left));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) {
        if (written == 0) errno = ENOSPC;
        fail(StorageAction::write, path_, concat({count - left, " of ", count, " bytes"}));
      }
      at += written;
      left -= written;
    }
  }
  void sync() override {
    if (::fsync(descriptor_.get()) != 0) fail(StorageAction::sync, path_);
  }
  void close() override {
    if (::close(descriptor_.release()) != 0) fail(StorageAction::close, path_);
  }

 private:
  std::string path_;
  detail::FileDescriptor descriptor_;
};

class LocalReadFile final : public ReadFile {
 public:
  LocalReadFile(std::string path, int descriptor)
      : path_(std::move(path)), descriptor_(descriptor) {
    struct stat status {};
    if (::fstat(descriptor_.get(), &status) != 0) fail(StorageAction::open, path_);
    if (!S_ISREG(status.st_mode))
      throw StorageError(StorageAction::open, path_, "something that is no file", EISDIR);
    bytes_ = status.st_size;
  }

  int64_t bytes() const override { return bytes_; }
  void read(void* to, int64_t offset, int64_t count) override {
    auto* at = static_cast<char*>(to);
    int64_t left = count;
    while (left > 0) {
      const ssize_t got = ::pread(descriptor_.get(), at, static_cast<size_t>(left), offset);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail(StorageAction::read, path_);
      if (got == 0)
        throw StorageError(StorageAction::read, path_,
                           concat({"the file's end ", left, " bytes early, at ", offset}), ENODATA);
      at += got;
      offset += got;
      left -= got;
    }
  }

 private:
  std::string path_;
  detail::FileDescriptor descriptor_;
  int64_t bytes_ = 0;
};

class LocalStorage final : public CheckpointStorage {
 public:
  void make_directory(const std::string& path) override {
    if (::mkdir(path.c_str(), 0777) == 0 || is_directory(path)) return;
    const size_t slash = path.find_last_of('/');
    if (errno == ENOENT && slash != std::string::npos && slash > 0) {
      make_directory(path.substr(0, slash));
      if (::mkdir(path.c_str(), 0777) == 0 || is_directory(path)) return;
    }
    fail(StorageAction::make_directory, path);
  }

  Ref<WriteFile> create(const std::string& path) override {
    const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0) fail(StorageAction::create, path);
    return make_ref<LocalWriteFile>(path, descriptor);
  }

  Ref<ReadFile> open(const std::string& path) override {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) fail(StorageAction::open, path);
    return make_ref<LocalReadFile>(path, descriptor);
  }

  void sync_directory(const std::string& path) override {
    const detail::FileDescriptor directory(
        ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    // Some file systems cannot sync a directory and say EINVAL; there is no more to do on those.
    if (directory.get() < 0 || (::fsync(directory.get()) != 0 && errno != EINVAL))
      fail(StorageAction::sync_directory, path);
  }

  void rename(const std::string& from, const std::string& to) override {
    if (std::rename(from.c_str(), to.c_str()) != 0) fail(StorageAction::rename, from, "to " + to);
  }

  void exchange(const std::string& a, const std::string& b) override {
    if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return;
    if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP)
      fail(StorageAction::exchange, a, "with " + b);
    exchange_by_renames(*this, a, b);
  }

  void remove_file(const std::string& path) override {
    if (::unlink(path.c_str()) != 0) fail(StorageAction::remove_file, path);
  }

  void remove_directory(const std::string& path) override {
    if (::rmdir(path.c_str()) != 0) fail(StorageAction::remove_directory, path);
  }

  std::vector<std::string> list(const std::string& path) override {
    struct Close {
      void operator()(DIR* directory) const { ::closedir(directory); }
    };
    const std::unique_ptr<DIR, Close> directory(::opendir(path.c_str()));
    if (!directory) {
      if (errno == ENOENT) return {};
      fail(StorageAction::list, path);
    }
    std::vector<std::string> names;
    for (;;) {
      errno = 0;
      const dirent* entry = ::readdir(directory.get());
      if (!entry) break;
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names.push_back(name);
    }
    if (errno != 0) fail(StorageAction::list, path);
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  // Leaves errno as it is.
  static bool is_directory(const std::string& path) {
    const int code = errno;
    struct stat status {};
    const bool is = ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
    errno = code;
    return is;
  }
};

}  // namespace

std::string to_string(StorageAction action) {
  return kActionNames[static_cast<size_t>(action)];
}

StorageError::StorageError(StorageAction action, const std::string& path, const std::string& got,
                           int code)
    : Error(concat({"[storage] expected to ", action, " ", path, ", got ", got})),
      code_(code),
      action_(action) {}

bool StorageError::missing() const {
  return code_ == ENOENT || code_ == ENOTDIR || code_ == EISDIR || code_ == ENODATA;
}

void exchange_by_renames(CheckpointStorage& storage, const std::string& a, const std::string& b) {
  const std::string aside = b + kExchanged;
  storage.rename(b, aside);
  try {
    storage.rename(a, b);
  } catch (const StorageError&) {
    storage.rename(aside, b);
    throw;
  }
  storage.rename(aside, a);
}

Ref<CheckpointStorage> local_storage() {
  return make_ref<LocalStorage>();
}

void remove_tree(CheckpointStorage& storage, const std::string& path) {
  bool empty = true;
  for (const std::string& name : storage.list(path)) {
    empty = false;
    const std::string entry = path + "/" + name;
    try {
      storage.remove_file(entry);
    } catch (const StorageError& error) {
      if (error.code() != EISDIR) throw;
      remove_tree(storage, entry);
    }
  }
  try {
    storage.remove_directory(path);
  } catch (const StorageError& error) {
    if (!empty || error.code() != ENOENT) throw;
  }
}

}  // namespace weft::dist
