// The training loop of the resnet app.
#pragma once

#include "apps/resnet/options.h"
#include "dist/trainer.h"

namespace weft::app {

// Trains, evaluates after each epoch, and writes the run directory and the export, whose names are
// those of torchvision; for folders of images also classes.txt, a name a line. Every rank calls it.
// Throws weft::Error.
void train_resnet(const ResNetAppOptions& options, dist::Session& session);

}  // namespace weft::app
