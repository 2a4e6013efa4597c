// The convolutions of a ResNet, each by Weft's own choice and by oneDNN (NHWC images, the weight in
// the layout that it likes best, primitives cached): forward, backward data, backward weights.
//
//   conv_ways [--model resnet50|resnet18|resnet20] [--batch N] [--threads N] [--rounds N]
//             [--dtype f32|bf16] [--way direct|gemm|winograd]
//
// Prints a line a shape: how often the model has it, then milliseconds of either and oneDNN's over
// Weft's for each of the three; and the sum over the model as images a second. Times are medians of
// interleaved runs. With --way it is that way that is held against oneDNN, for the shapes it can
// compute.
#include "core/parallel.h"
#include "ops/copy.h"
#include "ops/creation.h"
#include "ops/detail/conv.h"
#include "ops/detail/images.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace {

using namespace weft;
using detail::ConvShape;
using detail::ConvWay;

struct Layer {
  ConvShape shape;
  int count;
};

ConvShape square(int64_t in, int64_t out, int64_t size, int64_t kernel, int64_t stride) {
  const int64_t padding = kernel / 2;
  const int64_t result = (size + 2 * padding - kernel) / stride + 1;
  return {.channels = in,
          .in = {size, size},
          .outputs = out,
          .out = {result, result},
          .kernel = {kernel, kernel},
          .stride = {stride, stride},
          .padding = {padding, padding},
          .dilation = {1, 1}};
}

void add(std::vector<Layer>& layers, const ConvShape& shape) {
  for (Layer& layer : layers) {
    const ConvShape& s = layer.shape;
    if (s.channels == shape.channels && s.outputs == shape.outputs && s.in == shape.in &&
        s.kernel == shape.kernel && s.stride == shape.stride) {
      ++layer.count;
      return;
    }
  }
  layers.push_back({shape, 1});
}

// He et al., "Deep Residual Learning for Image Recognition" (2016), table 1 and §4.2; the stride of
// a bottleneck in its 3x3.
std::vector<Layer> layers_of(const std::string& model) {
  std::vector<Layer> layers;
  if (model == "resnet20") {
    add(layers, square(3, 16, 32, 3, 1));
    int64_t channels = 16, size = 32;
    for (int64_t width = 16; width <= 64; width *= 2) {
      for (int block = 0; block < 3; ++block) {
        const int64_t stride = block == 0 && width > 16 ? 2 : 1;
        add(layers, square(channels, width, size, 3, stride));
        size /= stride;
        add(layers, square(width, width, size, 3, 1));
        channels = width;
      }
    }
    return layers;
  }
  const bool deep = model == "resnet50";
  const int blocks[4] = {deep ? 3 : 2, deep ? 4 : 2, deep ? 6 : 2, deep ? 3 : 2};
  add(layers, square(3, 64, 224, 7, 2));
  int64_t channels = 64, size = 56, width = 64;
  for (int stage = 0; stage < 4; ++stage, width *= 2) {
    for (int block = 0; block < blocks[stage]; ++block) {
      const int64_t stride = block == 0 && stage > 0 ? 2 : 1;
      const int64_t out = deep ? 4 * width : width;
      if (deep) {
        add(layers, square(channels, width, size, 1, 1));
        add(layers, square(width, width, size, 3, stride));
        add(layers, square(width, out, size / stride, 1, 1));
      } else {
        add(layers, square(channels, width, size, 3, stride));
        add(layers, square(width, width, size / stride, 3, 1));
      }
      if (channels != out || stride != 1) add(layers, square(channels, out, size, 1, stride));
      size /= stride;
      channels = out;
    }
  }
  return layers;
}

double seconds_of(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Pair {
  double ours, theirs;
};

// Medians of runs in turn, A-B-B-A.
Pair measure(int rounds, ConvWay way, const std::function<void(ConvWay)>& run) {
  std::vector<double> ours, theirs;
  run(way);
  run(ConvWay::onednn);
  for (int i = 0; i < rounds; ++i) {
    ours.push_back(seconds_of([&] { run(way); }));
    theirs.push_back(seconds_of([&] { run(ConvWay::onednn); }));
    theirs.push_back(seconds_of([&] { run(ConvWay::onednn); }));
    ours.push_back(seconds_of([&] { run(way); }));
  }
  const auto median = [](std::vector<double>& list) {
    std::nth_element(list.begin(), list.begin() + static_cast<int64_t>(list.size() / 2),
                     list.end());
    return list[list.size() / 2];
  };
  return {median(ours), median(theirs)};
}

const char* name_of(ConvWay way) {
  switch (way) {
    case ConvWay::direct:
      return "direct";
    case ConvWay::gemm:
      return "gemm";
    case ConvWay::winograd:
      return "winograd";
    case ConvWay::depthwise:
      return "depthwise";
    default:
      return "onednn";
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::string model = "resnet50";
  DType dtype = f32;
  int64_t batch = 16;
  int threads = 2;
  int rounds = 5;
  ConvWay asked = ConvWay::best;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    const std::string value = argv[i + 1];
    if (flag == "--model") model = value;
    if (flag == "--batch") batch = std::atoi(value.c_str());
    if (flag == "--threads") threads = std::atoi(value.c_str());
    if (flag == "--rounds") rounds = std::atoi(value.c_str());
    if (flag == "--dtype") dtype = dtype_from_name(value);
    for (const ConvWay way : {ConvWay::direct, ConvWay::gemm, ConvWay::winograd}) {
      if (flag == "--way" && value == name_of(way)) asked = way;
    }
  }
  set_num_threads(threads);
  std::printf("%-34s %5s %-9s %8s  %-24s %-24s %-24s\n", "convolution", "count", "way", "GFLOP",
              "forward: ours, oneDNN", "backward data", "backward weights");
  Pair total{0, 0};
  for (Layer& layer : layers_of(model)) {
    ConvShape& s = layer.shape;
    s.images = batch;
    if (!detail::conv_can(asked, s, dtype)) continue;
    const auto images = [&](const Shape& shape) { return to(channels_last(randn(shape)), dtype); };
    const Tensor x = images(s.in_shape());
    const Tensor g = images(s.out_shape());
    const Tensor weight = to(randn(s.weight_shape()), dtype);
    const Tensor y = detail::empty_images(s.out_shape(), dtype);
    const Tensor dx = detail::empty_images(s.in_shape(), dtype);
    const Tensor dw = empty_like(weight);
    const Pair forward = measure(
        rounds, asked, [&](ConvWay way) { detail::conv_forward(s, x, weight, {}, y, way); });
    const bool first = s.channels == 3;  // nobody wants the gradient of images
    const Pair data = first ? Pair{0, 0} : measure(rounds, asked, [&](ConvWay way) {
      detail::conv_backward_data(s, g, weight, {}, dx, way);
    });
    const Pair weights = measure(
        rounds, asked, [&](ConvWay way) { detail::conv_backward_weights(s, x, g, dw, {}, way); });
    const double gflop =
        2e-9 * static_cast<double>(s.out_shape().numel() * s.weight_shape().numel() / s.outputs);
    std::printf("%4ld -> %4ld, %ldx%ld / %ld of %3ld %10s %3d %-9s %8.2f", s.channels, s.outputs,
                s.kernel[0], s.kernel[1], s.stride[0], s.in[0], "", layer.count,
                name_of(asked == ConvWay::best ? detail::conv_best(s, dtype) : asked), gflop);
    for (const Pair& pair : {forward, data, weights}) {
      std::printf("  %7.2f %7.2f %5.2f  ", 1e3 * pair.ours, 1e3 * pair.theirs,
                  pair.ours > 0 ? pair.theirs / pair.ours : 1.0);
      total.ours += layer.count * pair.ours;
      total.theirs += layer.count * pair.theirs;
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  std::printf("%s, batch %ld, %d threads: %.2f images/s, oneDNN %.2f\n", model.c_str(), batch,
              threads, static_cast<double>(batch) / total.ours,
              static_cast<double>(batch) / total.theirs);
  return 0;
}
