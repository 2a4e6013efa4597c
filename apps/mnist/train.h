// The training loop of the mnist app.
#pragma once

#include "apps/mnist/options.h"
#include "dist/trainer.h"

namespace weft::app {

// Trains, evaluates after each epoch, and writes the run directory and the export. Every rank calls
// it. Throws weft::Error.
void train_mnist(const MnistOptions& options, dist::Session& session);

}  // namespace weft::app
