// All layers, losses and initialisers.
#pragma once

#include "nn/activation.h"
#include "nn/attention.h"
#include "nn/conv.h"
#include "nn/deferred.h"
#include "nn/init.h"
#include "nn/linear.h"
#include "nn/loss.h"
#include "nn/module.h"
#include "nn/norm.h"
#include "nn/pool.h"
#include "nn/sequential.h"
