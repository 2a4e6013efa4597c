#include "dist/agreement.h"

#include <algorithm>
#include <cstring>

namespace weft::dist {
namespace {

constexpr int64_t kVerdict = 512;

// FNV-1a (Fowler, Noll, Vo), 64 bits.
uint64_t digest_of(const std::vector<std::string>& lines) {
  uint64_t digest = 0xcbf29ce484222325;
  for (const std::string& line : lines) {
    for (const char c : line + "\n")
      digest = (digest ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return digest;
}

// Rank 0's lines, on every rank.
std::vector<std::string> lines_of_rank_0(Communicator& comm,
                                         const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines)
    text += line + "\n";
  auto size = static_cast<int64_t>(text.size());
  comm.broadcast({&size, 1, i64}, 0, {"agreement"});
  text.resize(static_cast<size_t>(size));
  comm.broadcast({text.data(), size, u8}, 0, {"agreement"});
  std::vector<std::string> result;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    result.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return result;
}

}  // namespace

void check_agreement(Communicator& comm, const char* op, const std::vector<std::string>& lines) {
  if (comm.size() == 1) return;
  const auto mine = static_cast<int64_t>(digest_of(lines));
  std::vector<int64_t> digests(static_cast<size_t>(comm.size()));
  comm.all_gather({const_cast<int64_t*>(&mine), 1, i64}, {digests.data(), comm.size(), i64},
                  {"agreement"});
  const auto other = std::find_if(digests.begin(), digests.end(),
                                  [&](int64_t digest) { return digest != digests.front(); });
  if (other == digests.end()) return;

  const auto culprit = static_cast<int>(other - digests.begin());
  const std::vector<std::string> first = lines_of_rank_0(comm, lines);
  std::string verdict(kVerdict, '\0');
  if (comm.rank() == culprit) {
    size_t at = 0;
    while (at < lines.size() && at < first.size() && lines[at] == first[at])
      ++at;
    const std::string expected = at < first.size() ? first[at] : "nothing more";
    const std::string got = at < lines.size() ? lines[at] : "nothing more";
    const std::string text = "expected the same on every rank, got " + got + " on rank " +
                             std::to_string(culprit) + " where rank 0 has " + expected;
    text.copy(verdict.data(), kVerdict - 1);
  }
  comm.broadcast({verdict.data(), kVerdict, u8}, culprit, {"agreement"});
  throw_error(op, {std::string_view(verdict.c_str())});
}

}  // namespace weft::dist
