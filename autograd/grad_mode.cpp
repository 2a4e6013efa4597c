#include "autograd/grad_mode.h"

namespace weft {
namespace {
thread_local bool t_enabled = true;
}

bool grad_enabled() {
  return t_enabled;
}

NoGrad::NoGrad() : previous_(t_enabled) {
  t_enabled = false;
}
NoGrad::~NoGrad() {
  t_enabled = previous_;
}

EnableGrad::EnableGrad() : previous_(t_enabled) {
  t_enabled = true;
}
EnableGrad::~EnableGrad() {
  t_enabled = previous_;
}

}  // namespace weft
