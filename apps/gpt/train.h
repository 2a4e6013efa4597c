// The training loop of the gpt app.
#pragma once

#include "apps/gpt/options.h"
#include "dist/trainer.h"

namespace weft::app {

// Trains, evaluates after each epoch, writes the run directory and the export, then a sample: to
// standard output unless quiet, and to sample.txt in the run directory. Every rank calls
// it. Throws weft::Error.
void train_gpt(const GptAppOptions& options, dist::Session& session);

// Writes a sample with the weights of --init, on rank 0.
void sample_gpt(const GptAppOptions& options, dist::Communicator& comm);

}  // namespace weft::app
