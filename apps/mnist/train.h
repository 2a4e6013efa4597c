// The training loop of the mnist app.
#pragma once

#include "apps/mnist/options.h"
#include "dist/communicator.h"

namespace weft::app {

// Trains, evaluates after each epoch, and writes the run directory and the export. Every rank calls
// it. Throws weft::Error.
void train_mnist(const MnistOptions& options, dist::Communicator& comm);

}  // namespace weft::app
