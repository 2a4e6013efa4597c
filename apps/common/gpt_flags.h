// The flags that shape a Gpt: the gpt app and `weft bench step` share them.
#pragma once

#include "apps/common/command_line.h"
#include "nn/models/gpt.h"

#include <array>

namespace weft::app {

inline constexpr std::array<const char*, 7> kGptFlags = {
    "--layers", "--width", "--heads", "--context", "--dropout", "--untied", "--recompute"};

struct GptFlags {
  nn::models::GptOptions model;  // tied is set by apply_gpt_flags
  bool untied = false;
};

// Adds kGptFlags, with the values `flags` holds as defaults. The vocabulary is the text's.
void add_gpt_flags(CommandLine& line, GptFlags& flags);

// After parsing: refuses sizes that do not fit together (returns the exit code).
std::optional<int> apply_gpt_flags(const CommandLine& line, GptFlags& flags);

}  // namespace weft::app
