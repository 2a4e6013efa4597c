#include "dist/detail/verdict_text.h"

#include "core/error.h"

#include <cstdio>
#include <cstring>

namespace weft::dist::detail {

std::string seconds_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", value);
  return text;
}

std::string name_of_rank(int rank, int of_the_job) {
  if (of_the_job == rank) return concat({"rank ", rank});
  return concat({"rank ", rank, " (of the job: ", of_the_job, ")"});
}

std::string story_of(const Absence& absence) {
  const bool gone = !absence.fate.empty();
  std::string text = absence.who + ": it ";
  text += gone ? absence.fate : "did not come within " + seconds_text(absence.waited);
  if (absence.silent) text += " and does not answer";
  if (absence.seen.state == Whereabouts::State::nowhere) return text + ", without any call so far";
  if (gone || absence.silent || absence.seen.state == Whereabouts::State::after) {
    text += concat({", last seen in ", absence.seen.call});
    if (!gone && absence.ago >= 0)
      text += concat({", which it left ", seconds_text(absence.ago), " ago"});
  } else {
    text += concat({absence.same ? ", it is in the midst of " : ", it is elsewhere: in ",
                    absence.seen.call, " for ", seconds_text(absence.ago)});
  }
  return text;
}

std::string missing_text(const std::string& op, int ranks, const std::string& call,
                         std::span<const std::string> stories) {
  std::string list;
  for (const std::string& story : stories)
    list += (list.empty() ? "" : "; ") + story;
  return concat({"[", op, "] expected all ", ranks, " ranks in ", call, ", got no ", list});
}

std::string gave_up_text(const std::string& communicator, int ranks, const std::string& who,
                         const Whereabouts::Snapshot& seen, const std::string& reason) {
  std::string text = concat({"[communicator] expected all ", ranks, " ranks of '", communicator,
                             "', got no ", who, ": it gave up"});
  if (seen.state != Whereabouts::State::nowhere)
    text += concat({seen.state == Whereabouts::State::inside ? " in " : " after ", seen.call});
  if (!reason.empty()) text += ": " + reason;
  return text;
}

std::string mismatch_text(const std::string& op, std::span<const Contract* const> contracts,
                          std::span<const int> ranks, int64_t sequence,
                          const std::string& communicator) {
  const auto size = static_cast<int>(contracts.size());
  bool same = true;
  for (size_t r = 1; r < contracts.size() && same; ++r)
    same = std::memcmp(contracts[r], contracts[0], sizeof(Contract)) == 0;
  if (same) return "";
  for (int a = 0; a < size; ++a) {
    for (int b = a + 1; b < size; ++b) {
      const Contract& first = *contracts[static_cast<size_t>(a)];
      const Contract& second = *contracts[static_cast<size_t>(b)];
      if (agree(first, second)) continue;
      return concat({"[", op, "] expected the same call on all ", size, " ranks, got on ",
                     name_of_rank(a, ranks[static_cast<size_t>(a)]), ": ",
                     describe(first, sequence, communicator), "; on ",
                     name_of_rank(b, ranks[static_cast<size_t>(b)]), ": ",
                     describe(second, sequence, communicator)});
    }
  }
  return "";
}

std::string pair_mismatch_text(const Contract& sent, int sender, const Contract& received,
                               int receiver, std::span<const int> ranks, int64_t sequence,
                               const std::string& communicator) {
  if (agree(sent, received) && sent.root == receiver && received.root == sender) return "";
  const auto name = [&](int r) { return name_of_rank(r, ranks[static_cast<size_t>(r)]); };
  return concat({"[send] expected the same call of both ranks, got on ", name(sender), ": ",
                 describe(sent, sequence, communicator), "; on ", name(receiver), ": ",
                 describe(received, sequence, communicator)});
}

}  // namespace weft::dist::detail
