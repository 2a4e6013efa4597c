// Work that every rank does in its own time and that all of them must know the outcome of.
#pragma once

#include "core/function.h"
#include "dist/communicator.h"

#include <string>
#include <vector>

namespace weft::dist::detail {

// Every rank's text, in rank order, on every rank. A collective.
std::vector<std::string> share_texts(Communicator& comm, const std::string& text);
// Root's text on every rank. A collective.
std::string broadcast_text(Communicator& comm, const std::string& text, int root = 0);

// Runs `job` on this thread, and returns, when all ranks are through, what each of them threw: the
// text of an Error, empty where there was none. A rank may take longer than the communicator's
// timeout: meanwhile a thread of its own keeps telling the others that it is at work. A dead rank
// is noticed all the same, as a CommunicationError. `alive` is called now and then until all are
// through, by that thread.
std::vector<std::string> run_together(Communicator& comm, const Function<void()>& job,
                                      const Function<void()>& alive = {});

// One text of several ranks': "rank 1: …", or the text alone where all have the same.
std::string by_rank(const std::vector<std::string>& texts);

}  // namespace weft::dist::detail
