#include "data/detail/scan_folder.h"

#include "core/error.h"
#include "data/detail/png.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

namespace weft::data::detail {
namespace {

enum class Kind { folder, file, other };

struct Entry {
  std::string name;
  Kind kind;
  bool operator<(const Entry& other) const { return name < other.name; }
};

// What a path is, links followed; a link that leads nowhere is `other`.
Kind kind_of(const std::string& path, unsigned char type) {
  if (type == DT_DIR) return Kind::folder;
  if (type == DT_REG) return Kind::file;
  struct stat status {};
  if ((type != DT_LNK && type != DT_UNKNOWN) || stat(path.c_str(), &status) != 0)
    return Kind::other;
  if (S_ISDIR(status.st_mode)) return Kind::folder;
  return S_ISREG(status.st_mode) ? Kind::file : Kind::other;
}

// Sorted by bytes, without hidden names.
std::vector<Entry> list(const std::string& folder) {
  const auto close = [](DIR* handle) { closedir(handle); };
  const std::unique_ptr<DIR, decltype(close)> handle(opendir(folder.c_str()), close);
  WEFT_CHECK(handle, kImageFolder, "expected a folder that can be listed, got ", folder, ": ",
             std::strerror(errno));
  std::vector<Entry> entries;
  for (;;) {
    errno = 0;
    const dirent* entry = readdir(handle.get());
    if (!entry) break;
    if (entry->d_name[0] == '.') continue;
    entries.push_back({entry->d_name, kind_of(folder + "/" + entry->d_name, entry->d_type)});
  }
  WEFT_CHECK(errno == 0, kImageFolder, folder, ": ", std::strerror(errno));
  std::sort(entries.begin(), entries.end());
  return entries;
}

bool has_image_name(const std::string& name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos) return false;
  std::string ending = name.substr(dot + 1);
  for (char& c : ending)
    c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return ending == "jpg" || ending == "jpeg" || ending == "png";
}

bool begins_as_image(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  std::array<std::byte, 8> bytes{};
  const ssize_t got = ::read(file, bytes.data(), bytes.size());
  close(file);
  const std::span<const std::byte> start(bytes.data(), got > 0 ? static_cast<size_t>(got) : 0);
  return is_jpeg(start) || is_png(start);
}

class Scanner {
 public:
  Scanner(const std::string& root, FolderList& found) : root_(root), found_(found) {}

  // `below` is the folder's path from the root.
  void walk(const std::string& below, int32_t label) {
    const std::string folder = root_ + "/" + below;
    struct stat status {};
    WEFT_CHECK(stat(folder.c_str(), &status) == 0, kImageFolder, folder, ": ",
               std::strerror(errno));
    const std::pair identity(status.st_dev, status.st_ino);
    if (std::find(around_.begin(), around_.end(), identity) != around_.end()) return;
    around_.push_back(identity);
    for (const Entry& entry : list(folder)) {
      const std::string path = below + "/" + entry.name;
      if (entry.kind == Kind::folder) {
        walk(path, label);
      } else if (is_sample(entry, root_ + "/" + path)) {
        found_.paths += path;
        found_.ends.push_back(found_.paths.size());
        found_.labels.push_back(label);
      }
    }
    around_.pop_back();
  }

 private:
  // A broken link of an image's name is a sample, which fails when it is read.
  static bool is_sample(const Entry& entry, const std::string& path) {
    if (has_image_name(entry.name)) return entry.kind == Kind::file || is_link(path);
    return entry.kind == Kind::file && begins_as_image(path);
  }
  static bool is_link(const std::string& path) {
    struct stat status {};
    return lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode) &&
           stat(path.c_str(), &status) != 0;
  }

  const std::string& root_;
  FolderList& found_;
  std::vector<std::pair<dev_t, ino_t>> around_;  // the folders this one lies in
};

void check_names(const std::string& root, const std::vector<std::string>& there,
                 std::vector<std::string> classes) {
  std::sort(classes.begin(), classes.end());
  const auto twice = std::adjacent_find(classes.begin(), classes.end());
  WEFT_CHECK(twice == classes.end(), kImageFolder, "expected different classes, got ", *twice,
             " twice");
  for (const std::string& name : there) {
    WEFT_CHECK(std::binary_search(classes.begin(), classes.end(), name), kImageFolder,
               "expected the ", classes.size(), " classes given, got the folder ", root, "/", name,
               ", which is none of them");
  }
}

}  // namespace

std::string FolderList::path(int64_t index) const {
  const auto at = static_cast<size_t>(index);
  const uint64_t begin = at == 0 ? 0 : ends[at - 1];
  return paths.substr(begin, ends[at] - begin);
}

FolderList scan_folder(const std::string& root, const ImageFolderOptions& options) {
  FolderList found;
  std::vector<std::string> there;
  for (Entry& entry : list(root)) {
    if (entry.kind != Kind::folder) continue;
    WEFT_CHECK(entry.name.find('\n') == std::string::npos, kImageFolder,
               "expected names of classes without a line feed, got one in ", root);
    there.push_back(std::move(entry.name));
  }
  found.classes = options.classes.empty() ? there : options.classes;
  WEFT_CHECK(!found.classes.empty(), kImageFolder, "expected a folder for each class in ", root,
             ", got none");
  if (!options.classes.empty()) check_names(root, there, options.classes);
  Scanner scanner(root, found);
  for (size_t i = 0; i < found.classes.size(); ++i) {
    const std::string& name = found.classes[i];
    const size_t before = found.labels.size();
    if (std::binary_search(there.begin(), there.end(), name))
      scanner.walk(name, static_cast<int32_t>(i));
    WEFT_CHECK(found.labels.size() > before || options.empty_classes == EmptyClass::keep,
               kImageFolder, "expected images in every class, got none in ", root, "/", name,
               " (empty classes can be kept)");
  }
  WEFT_CHECK(!found.labels.empty(), kImageFolder, "expected images in ", root, ", got none");
  return found;
}

}  // namespace weft::data::detail
