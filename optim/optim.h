// All optimizers, schedules, gradient clipping, loss scaling and averages of weights.
#pragma once

#include "optim/adam.h"
#include "optim/clip.h"
#include "optim/ema.h"
#include "optim/lamb.h"
#include "optim/lars.h"
#include "optim/loss_scaler.h"
#include "optim/schedule.h"
#include "optim/sgd.h"
