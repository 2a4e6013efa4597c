// Made-up photographs for measuring: JPEG files with as much detail, and so as many bytes, as
// photographs of their size commonly have.
#pragma once

#include <string>

namespace weft::app {

// A folder of 32 images of 500 × 375 and 32 of 640 × 480 pixels, 58 KB each, two classes.
class Photographs {
 public:
  // Written to `folder` unless it is there. Empty: to a temporary folder, which goes with this
  // object.
  explicit Photographs(const std::string& folder);
  ~Photographs();
  Photographs(const Photographs&) = delete;
  Photographs& operator=(const Photographs&) = delete;

  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
  bool temporary_ = false;
};

}  // namespace weft::app
