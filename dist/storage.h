// Where checkpoints are kept: the few operations that saving and loading need, so that other places
// than a file system can serve, and so that tests can make any of them fail.
//
// Every operation of a save passes through here one by one: each file's creation, each write, sync
// and close, each directory's sync, each rename and removal. hooked_storage() announces them before
// they happen and lets a hook delay, refuse, cut short or damage them, or end the process.
//
// Paths are the system's, "/"-separated. A storage may be used by several threads at once; one of
// its files belongs to one thread at a time. What fails throws a StorageError and, but for partly
// written files, leaves things as they were.
#pragma once

#include "core/error.h"
#include "core/function.h"
#include "core/ref.h"

#include <cstdint>
#include <string>
#include <vector>

namespace weft::dist {

enum class StorageAction : uint8_t {
  make_directory,
  create,
  write,
  sync,
  close,
  sync_directory,
  rename,
  exchange,
  remove_file,
  remove_directory,
  open,
  read,
  list
};
// "make_directory", "create", …
std::string to_string(StorageAction action);

// The text names the operation, the path and the system's reason.
class StorageError : public Error {
 public:
  StorageError(StorageAction action, const std::string& path, const std::string& got, int code);
  // An errno: ENOSPC, EROFS, …
  int code() const { return code_; }
  StorageAction action() const { return action_; }
  // Storage works, and what was to be read is not there: no such file, something else in its place,
  // or a file that ends too early (ENODATA). All other errors - of a disk, a network, a process
  // without descriptors or memory left - say nothing about the file.
  bool missing() const;

 private:
  int code_;
  StorageAction action_;
};

// A new file that is written from its beginning to its end. Destroying it closes it, without a word
// about errors.
class WriteFile : public RefCounted {
 public:
  // Appends all of it.
  virtual void write(const void* bytes, int64_t count) = 0;
  // What has been written so far survives a crash of the machine.
  virtual void sync() = 0;
  virtual void close() = 0;
};

class ReadFile : public RefCounted {
 public:
  virtual int64_t bytes() const = 0;
  // All `count` bytes from `offset` on; throws where the file is shorter. Any number of threads may
  // read at once.
  virtual void read(void* to, int64_t offset, int64_t count) = 0;
};

class CheckpointStorage : public RefCounted {
 public:
  // With its parents; one that is there already is fine.
  virtual void make_directory(const std::string& path) = 0;
  // The file must not be there yet.
  virtual Ref<WriteFile> create(const std::string& path) = 0;
  virtual Ref<ReadFile> open(const std::string& path) = 0;
  // The directory's entries survive a crash of the machine.
  virtual void sync_directory(const std::string& path) = 0;
  // At once: others see `from` or `to`. Replaces a file; a directory must not be there.
  virtual void rename(const std::string& from, const std::string& to) = 0;
  // Each gets the other's name, at once where the file system can do that.
  virtual void exchange(const std::string& a, const std::string& b) = 0;
  // EISDIR where that is a directory.
  virtual void remove_file(const std::string& path) = 0;
  // An empty one.
  virtual void remove_directory(const std::string& path) = 0;
  // Names of a directory's entries, sorted; none where there is no such directory.
  virtual std::vector<std::string> list(const std::string& path) = 0;
};

// exchange() where the file system cannot: three renames. For a moment there is no b; what it was
// lies at b + kExchanged until the last of them, and whoever finds it there without b puts it back.
void exchange_by_renames(CheckpointStorage& storage, const std::string& a, const std::string& b);
inline constexpr const char* kExchanged = ".exchanged";

// The file system of this machine, or one that several share.
Ref<CheckpointStorage> local_storage();

// Removes a directory with all that is in it, one operation each; one that is not there is fine.
void remove_tree(CheckpointStorage& storage, const std::string& path);

// ---- faults ----

struct StorageOperation {
  StorageAction action = StorageAction::write;
  std::string path;
  int64_t offset = 0;  // of a write or read: from the file's beginning
  int64_t bytes = 0;
};

// What is to become of it; by default, what was asked for.
struct StorageFault {
  // Fails with this errno: ENOSPC for a full disk, EROFS for a read-only one, EIO for a broken one.
  int error = 0;
  // Of a write that fails: so many bytes get there before.
  int64_t written = 0;
  // Of a write or read that does not fail: this bit of its bytes is turned. -1: none.
  int64_t flip_bit = -1;
};

// Called before every operation, on the thread that asks for it; may also sleep, throw what it
// likes, or end the process.
using StorageHook = Function<StorageFault(const StorageOperation& operation)>;

// `storage` behind a hook.
Ref<CheckpointStorage> hooked_storage(Ref<CheckpointStorage> storage, StorageHook hook);

}  // namespace weft::dist
