// Before the first step: do all ranks hold the same model?
#pragma once

#include "dist/communicator.h"

#include <string>

namespace weft::dist::detail {

// A collective. `lines` describe what this rank has, a line a thing. Where ranks differ from rank
// 0, every rank throws one Error that names the first such rank and both lines.
void check_agreement(Communicator& comm, const char* op, const std::vector<std::string>& lines);

}  // namespace weft::dist::detail
