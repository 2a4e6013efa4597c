#include "data/detail/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>

namespace weft::data::detail {
namespace {

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

[[noreturn]] void throw_unreadable(const char* op, const std::string& name, int error) {
  const std::string text =
      concat({"[", op, "] expected a readable file, got ", name, ": ", std::strerror(error)});
  if (error == EMFILE || error == ENFILE || error == ENOMEM) throw OutOfResources(text);
  throw Error(text);
}

}  // namespace

void read_file(const char* op, const std::string& path, std::vector<std::byte>& bytes,
               const ReadFile& how) {
  const std::string& name = how.name.empty() ? path : how.name;
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) throw_unreadable(op, name, errno);
  struct stat status {};
  WEFT_CHECK(fstat(file.fd, &status) == 0, op, name, ": ", std::strerror(errno));
  WEFT_CHECK(S_ISREG(status.st_mode), op, "expected a regular file, got ", name);
  WEFT_CHECK(status.st_size <= how.most_bytes, op, name, ": expected at most ", how.most_bytes,
             " bytes, got ", status.st_size);
  try {
    bytes.resize(static_cast<size_t>(status.st_size));
  } catch (const std::exception&) {
    throw OutOfResources(concat({"[", op, "] expected memory for ", name, ", got none for ",
                                 static_cast<int64_t>(status.st_size), " bytes"}));
  }
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = read(file.fd, bytes.data() + done, bytes.size() - done);
    if (got < 0 && errno == EINTR) continue;
    WEFT_CHECK(got > 0, op, name, " at byte ", done, ": ",
               got == 0 ? "expected more bytes, got the end of the file" : std::strerror(errno));
    done += static_cast<size_t>(got);
  }
}

std::vector<std::byte> read_file(const char* op, const std::string& path) {
  std::vector<std::byte> bytes;
  read_file(op, path, bytes);
  return bytes;
}

}  // namespace weft::data::detail
