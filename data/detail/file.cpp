#include "data/detail/file.h"

#include "core/error.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace weft::data::detail {
namespace {

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

}  // namespace

void read_file(const char* op, const std::string& path, std::vector<std::byte>& bytes) {
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  WEFT_CHECK(file.fd >= 0, op, "expected a readable file, got ", path, ": ", std::strerror(errno));
  struct stat status {};
  WEFT_CHECK(fstat(file.fd, &status) == 0, op, path, ": ", std::strerror(errno));
  WEFT_CHECK(S_ISREG(status.st_mode), op, "expected a regular file, got ", path);
  bytes.resize(static_cast<size_t>(status.st_size));
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = read(file.fd, bytes.data() + done, bytes.size() - done);
    if (got < 0 && errno == EINTR) continue;
    WEFT_CHECK(got > 0, op, path, " at byte ", done, ": ",
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
