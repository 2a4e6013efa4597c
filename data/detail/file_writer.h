// A file that is there whole or not at all.
#pragma once

#include <cstddef>
#include <string>

namespace weft::data::detail {

// Writes under a temporary name beside `path`; commit() syncs it and gives it its name. Without
// commit(), or where something throws, nothing is left. Errors read "[op] path: reason".
class FileWriter {
 public:
  FileWriter(const char* op, std::string path);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(const void* bytes, size_t count);
  // Over what was written before.
  void write_at(const void* bytes, size_t count, size_t offset);
  void commit();

 private:
  void check(bool held, const char* what) const;

  const char* op_;
  std::string path_;
  std::string temporary_;
  int file_ = -1;
};

}  // namespace weft::data::detail
