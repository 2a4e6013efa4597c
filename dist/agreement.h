// Before the work begins: do all ranks mean the same?
#pragma once

#include "dist/communicator.h"

#include <string>

namespace weft::dist {

// A collective. `lines` describe what this rank has, such as a model or settings, a line a thing.
// Where ranks differ from rank 0, every rank throws one Error that names the first such rank and
// both lines. Ranks that disagree about what the lines describe may give any number of them.
void check_agreement(Communicator& comm, const char* op, const std::vector<std::string>& lines);

}  // namespace weft::dist
