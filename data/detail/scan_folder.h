// Lists a folder of classes; image_folder.h says what counts.
#pragma once

#include "data/image_folder.h"

namespace weft::data::detail {

inline constexpr const char* kImageFolder = "image_folder";  // the operation that errors name

struct FolderList {
  std::vector<std::string> classes;
  std::vector<int32_t> labels;  // of each sample
  std::vector<uint64_t> ends;   // of each sample's path in `paths`
  std::string paths;  // below the root, one after the other: millions of them are small so

  std::string path(int64_t index) const;
};

FolderList scan_folder(const std::string& root, const ImageFolderOptions& options);

}  // namespace weft::data::detail
