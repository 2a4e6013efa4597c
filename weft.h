// Weft: everything an application needs.
#pragma once

#include "autograd/engine.h"
#include "autograd/grad_mode.h"
#include "autograd/leaf.h"
#include "autograd/recompute.h"
#include "core/ledger.h"
#include "core/parallel.h"
#include "core/random.h"
#include "core/tensor.h"
#include "data/images.h"
#include "data/loader.h"
#include "data/text.h"
#include "nn/models/gpt.h"
#include "nn/models/mnist.h"
#include "nn/nn.h"
#include "ops/ops.h"
#include "optim/optim.h"
