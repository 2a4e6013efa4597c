// All optimizers, schedules and gradient clipping.
#pragma once

#include "optim/adam.h"
#include "optim/clip.h"
#include "optim/lamb.h"
#include "optim/lars.h"
#include "optim/schedule.h"
#include "optim/sgd.h"
