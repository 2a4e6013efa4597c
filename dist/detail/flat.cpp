#include "dist/detail/flat.h"

#include "autograd/grad_mode.h"
#include "dist/detail/point_tensor.h"
#include "nn/deferred.h"
#include "ops/copy.h"
#include "optim/norm.h"

#include <algorithm>
#include <cstring>

namespace weft::dist::detail {
namespace {

int64_t alignment_of(DType dtype) {
  return std::max<int64_t>(optim::kNormGroup, 64 / size_of(dtype));
}

int64_t rounded_up(int64_t count, int64_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

}  // namespace

Flat::Flat(std::string unit, const std::vector<NamedTensor>& parameters, const Mesh& mesh,
           Rest parameters_rest)
    : unit_(std::move(unit)),
      dtype_(parameters.at(0).tensor.dtype()),
      trained_(parameters.at(0).tensor.requires_grad()),
      sharded_(parameters_rest == Rest::sharded),
      shards_(mesh.shards()),
      shard_index_(mesh.shard_index()) {
  const NoGrad no_grad;
  const int64_t alignment = alignment_of(dtype_);
  std::vector<Tensor> values;
  for (const auto& [name, tensor] : parameters) {
    values.push_back(tensor.is_dense() ? tensor.detach() : contiguous(tensor.detach()));
    const Tensor& value = values.back();
    entries_.push_back({name, tensor, value.shape(), value.strides(), length_, value.numel()});
    used_length_ += value.numel();
    length_ += rounded_up(value.numel(), alignment);
  }
  length_ = rounded_up(std::max<int64_t>(length_, 1), alignment * shards_);

  const int64_t width = size_of(dtype_);
  const CategoryScope category(Category::parameters);
  if (sharded_) {
    gathered_.emplace(length_ * width);
    take();
  } else {
    resting_ = mesh.gather().allocate(length_ * width);
  }
  const Ref<Storage>& full = sharded_ ? gathered_->storage() : resting_;
  std::memset(full->data(), 0, static_cast<size_t>(length_ * width));
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    const Tensor place = view_of(full, entry.offset * width, entry.shape, entry.strides, dtype_);
    if (nn::is_deferred(entry.parameter)) {
      nn::make_values(entry.parameter, place);
    } else {
      std::memcpy(place.raw(), values[i].raw(), static_cast<size_t>(values[i].bytes()));
    }
  }
  values.clear();
  point_at(full);
  // Ranks start from the values of rank 0, whatever each of them was built with.
  mesh.world().broadcast(whole(), 0, tag());
  if (sharded_) {
    resting_ = mesh.gather().allocate(shard_length() * width);
    keep_shard();
    drop();
  }
}

Elements Flat::whole() const {
  return {(sharded_ ? gathered_->storage() : resting_)->data(), length_, dtype_};
}

Elements Flat::shard() const {
  return {resting_->data() + shard_byte(), shard_length(), dtype_};
}

void Flat::take() {
  gathered_->take(Category::communication);
}

void Flat::point() {
  point_at(gathered_->storage());
}

void Flat::point_at(const Ref<Storage>& storage) {
  for (const Entry& entry : entries_)
    point_tensor(entry.parameter, view_of(storage, entry.offset * size_of(dtype_), entry.shape,
                                          entry.strides, dtype_));
}

void Flat::drop() {
  for (const Entry& entry : entries_)
    entry.parameter.body()->data = nullptr;
  gathered_->drop();
}

void Flat::keep_shard() {
  const Elements shard_now = whole().part(shard_begin(), shard_length());
  std::memcpy(resting_->data(), shard_now.data, static_cast<size_t>(shard_now.bytes()));
  resting_->bump_version();
}

Flat::Interval Flat::in_shard(const Entry& entry, int64_t index) const {
  const int64_t low = index * shard_length() - entry.offset;
  const int64_t begin = std::clamp<int64_t>(low, 0, entry.count);
  const int64_t end = std::clamp<int64_t>(low + shard_length(), 0, entry.count);
  return {begin, end};
}

}  // namespace weft::dist::detail
