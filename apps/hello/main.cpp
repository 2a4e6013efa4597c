// The smallest useful program: fits a small network to y = sin(x).
#include <weft.h>

#include <cstdio>

using namespace weft;

struct Net : nn::Module {
  nn::Linear in{1, 32}, out{32, 1};
  Net() {
    add("in", in);
    add("out", out);
  }
  Tensor forward(const Tensor& x) override { return out(tanh(in(x))); }
};

int main() {
  manual_seed(1);
  Net net;
  optim::Adam optimizer(net.parameters(), {.lr = 0.02});

  const Tensor x = reshape(linspace(-3, 3, 64), {64, 1});
  const Tensor y = sin(x);
  for (int step = 0; step <= 400; ++step) {
    optimizer.zero_grad();
    const Tensor loss = mse_loss(net(x), y);
    backward(loss);
    optimizer.step();
    if (step % 100 == 0) std::printf("step %3d  loss %.5f\n", step, loss.item());
  }

  const NoGrad no_grad;
  std::printf("sin(1) = 0.8415, the network says %.4f\n", net(full({1, 1}, 1.0)).item());
}
