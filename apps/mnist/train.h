// The training loop of the mnist app.
#pragma once

#include "apps/mnist/options.h"

namespace weft::app {

// Trains, evaluates after each epoch, and writes the run directory and the export. Throws
// weft::Error.
void train_mnist(const MnistOptions& options);

}  // namespace weft::app
