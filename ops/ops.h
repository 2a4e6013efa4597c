// What tensors can do: every operator, by family.
#pragma once

#include "ops/copy.h"
#include "ops/creation.h"
#include "ops/elementwise.h"
#include "ops/norm.h"
#include "ops/pool.h"
#include "ops/reduce.h"
