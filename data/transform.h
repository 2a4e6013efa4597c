// What becomes of an image on its way into a batch: cut, resized, turned, moved, mirrored,
// recoloured, normalised, partly erased, in this order. Everything random in it is drawn from
// (seed, epoch, sample) alone, so that pixels depend neither on threads nor on ranks nor on which
// other samples share the batch; and each kind of draw has its own numbers, so that switching one
// on leaves the others as they were.
#pragma once

#include <array>
#include <cstdint>

namespace weft::data {

// A number for every channel, or one for all.
struct PerChannel {
  constexpr PerChannel(double all) : values{all, all, all} {}
  constexpr PerChannel(double red, double green, double blue) : values{red, green, blue} {}
  std::array<double, 3> values;
};

struct Range {
  double low;
  double high;
};

// Which part of an image is taken. It is resized to the size of the batch with a triangle filter
// that widens where the image shrinks (the antialiased bilinear filter of Pillow and torchvision),
// in f32 throughout.
enum class Crop : uint8_t {
  whole,   // all of it; sides may be scaled by different factors
  centre,  // the largest centred part of the batch's shape, times `crop_fraction`: 0.875 with 224
           // pixels is "resize the shorter side to 256, cut 224 from the middle"
  random,  // random-resized-crop (Szegedy et al., "Going deeper with convolutions", CVPR 2015, §6;
           // torchvision): a part of a random share `crop_area` of the image and a random
           // width/height `crop_aspect` (log-uniform), anywhere in it; after ten that do not fit,
           // the largest centred part whose shape is within `crop_aspect`
};

struct ImageOptions {
  // Pixels of the batch; 0: those of the images, which then are all alike.
  int64_t height = 0;
  int64_t width = 0;
  Crop crop = Crop::whole;
  double crop_fraction = 1;
  Range crop_area = {0.08, 1};
  Range crop_aspect = {3.0 / 4, 4.0 / 3};
  // Value = (byte / 255 - mean) / stddev.
  PerChannel mean = 0;
  PerChannel stddev = 1;
  // Mirror left-right with probability 1/2.
  bool flip = false;
  // Move by up to so many pixels each way: what is also called padding by `shift` and cutting the
  // size out again. What comes in from outside is black (byte 0), here and below.
  int64_t shift = 0;
  // Turn around the middle by up to so many degrees each way, and move by up to this share of the
  // width and the height; bilinear.
  double rotate = 0;
  double translate = 0;
  // Colour jitter as torchvision's ColorJitter, in an order drawn for each sample: factors in
  // [1 - x, 1 + x], hue moved by up to `hue` of the colour circle (at most 1/2). Saturation and hue
  // need three channels.
  double brightness = 0;
  double contrast = 0;
  double saturation = 0;
  double hue = 0;
  // Random erasing (Zhong et al., AAAI 2020): with this probability a part of the image becomes 0
  // after normalisation, its share in `erase_area`, width/height in `erase_aspect` (log-uniform);
  // the image stays whole if ten draws do not fit.
  double erase = 0;
  Range erase_area = {0.02, 0.33};
  Range erase_aspect = {0.3, 3.3};
};

}  // namespace weft::data
