// The training loop of the gpt app.
#pragma once

#include "apps/gpt/options.h"

namespace weft::app {

// Trains, evaluates after each epoch, writes the run directory and the export, then a sample: to
// standard output unless quiet, and to sample.txt in the run directory. Throws weft::Error.
void train_gpt(const GptAppOptions& options);

}  // namespace weft::app
