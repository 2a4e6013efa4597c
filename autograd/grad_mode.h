// Whether operators record what backward needs: on by default, per thread.
#pragma once

namespace weft {

bool grad_enabled();

// Switches recording off for its lifetime: evaluation, optimizer steps, in-place changes of
// parameters.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool previous_;
};

// Switches recording on inside a NoGrad.
class EnableGrad {
 public:
  EnableGrad();
  ~EnableGrad();
  EnableGrad(const EnableGrad&) = delete;
  EnableGrad& operator=(const EnableGrad&) = delete;

 private:
  bool previous_;
};

}  // namespace weft
