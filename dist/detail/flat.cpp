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

Strides resting_strides(const Tensor& tensor) {
  return tensor.is_dense() ? tensor.strides() : contiguous_strides(tensor.shape());
}

Flat::Flat(std::string unit, const std::vector<NamedTensor>& parameters, const Mesh& mesh,
           Rest parameters_rest, std::optional<DType> computed)
    : unit_(std::move(unit)),
      dtype_(parameters.at(0).tensor.dtype()),
      trained_(parameters.at(0).tensor.requires_grad()),
      sharded_(parameters_rest == Rest::sharded && mesh.shards() > 1),
      shards_(mesh.shards()),
      shard_index_(mesh.shard_index()) {
  const NoGrad no_grad;
  const bool mixed = computed && is_floating(dtype_) && dtype_ != f64;
  const DType made_in = mixed ? f32 : dtype_;
  if (mixed) dtype_ = *computed;
  const int64_t alignment = alignment_of(dtype_);
  for (const auto& [name, tensor] : parameters) {
    entries_.push_back(
        {name, tensor, tensor.shape(), resting_strides(tensor), length_, tensor.numel()});
    if (mixed) tensor.set_grad({});
    used_length_ += tensor.numel();
    length_ += rounded_up(tensor.numel(), alignment);
  }
  length_ = rounded_up(std::max<int64_t>(length_, 1), alignment * shards_);

  const int64_t width = size_of(dtype_);
  const CategoryScope category(Category::parameters);
  if (sharded_) {
    gathered_.emplace(length_ * width);
  } else {
    resting_ = mesh.gather().allocate(length_ * width);
  }
  if (mixed) {
    shown_ = Storage::allocate(length_ * size_of(made_in));
  } else if (sharded_) {
    take();
  }
  const Ref<Storage> full = mixed ? shown_ : sharded_ ? gathered_->storage() : resting_;
  // Ranks start from the values of rank 0, whatever each of them was built with.
  fill(full, made_in, mesh.world().rank() == 0);
  point_at(full, made_in);  // what they had goes
  mesh.world().broadcast({full->data(), length_, made_in}, 0, tag());
  if (sharded_) resting_ = mesh.gather().allocate(shard_length() * width);
  if (mixed) {
    const CategoryScope masters(Category::optimizer);
    masters_ = Storage::allocate(shard_length() * size_of(made_in));
    keep_masters();
    hide_masters();
  } else if (sharded_) {
    keep_shard();
    drop();
  }
}

// The values that parameters have; those that are yet to be made only where they are asked for.
void Flat::fill(const Ref<Storage>& storage, DType dtype, bool deferred_too) {
  std::memset(storage->data(), 0, static_cast<size_t>(length_ * size_of(dtype)));
  for (const Entry& entry : entries_) {
    const Tensor place =
        view_of(storage, entry.offset * size_of(dtype), entry.shape, entry.strides, dtype);
    const Tensor& from = entry.parameter;
    if (!nn::is_deferred(from)) {
      copy_(place, from.detach());
    } else if (!deferred_too) {
      nn::forget_values(from);
    } else if (from.dtype() == dtype) {
      nn::make_values(from, place);
    } else {
      const Tensor made = empty_like(place, from.dtype());
      nn::make_values(from, made);
      copy_(place, made);
    }
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
  point_at(gathered_->storage(), dtype_);
}

void Flat::point_at(const Ref<Storage>& storage, DType dtype) {
  for (const Entry& entry : entries_)
    point_tensor(entry.parameter, view_of(storage, entry.offset * size_of(dtype), entry.shape,
                                          entry.strides, dtype));
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

// ---- masters ----

void Flat::round_masters() const {
  if (!masters_) return;
  const NoGrad no_grad;
  const Shape shape{shard_length()};
  copy_(view_of(resting_, shard_byte(), shape, Strides{1}, dtype_),
        view_of(masters_, 0, shape, Strides{1}, f32));
}

void Flat::show_masters(const Mesh& mesh) {
  if (!masters_) return;
  if (shards_ > 1) {
    const CategoryScope category(Category::communication);
    shown_ = Storage::allocate(length_ * size_of(f32));
    mesh.gather().all_gather({masters_->data(), shard_length(), f32},
                             {shown_->data(), length_, f32}, tag());
  } else {
    shown_ = masters_;
  }
  point_at(shown_, f32);
}

void Flat::keep_masters() {
  if (!masters_) return;
  if (shown_ != masters_) {
    std::memcpy(masters_->data(), shown_->data() + shard_begin() * size_of(f32),
                static_cast<size_t>(masters_->bytes()));
    masters_->bump_version();
  }
  if (sharded_ || shards_ == 1) {
    round_masters();
    return;
  }
  const NoGrad no_grad;
  const Shape shape{length_};
  copy_(view_of(resting_, 0, shape, Strides{1}, dtype_),
        view_of(shown_, 0, shape, Strides{1}, f32));
}

void Flat::hide_masters() noexcept {
  if (!masters_) return;
  shown_ = {};
  point_at(sharded_ ? gathered_->storage() : resting_, dtype_);
  if (sharded_) drop();
}

Tensor Flat::stepped(const Entry& entry) const {
  const Ref<Storage>& storage = masters_ ? masters_ : resting_;
  const int64_t first_byte = masters_ ? 0 : shard_byte();
  const int64_t width = size_of(stepped_dtype());
  if (shards_ == 1) {
    if (!masters_) return entry.parameter;
    return view_of(storage, entry.offset * width, entry.shape, entry.strides, f32)
        .set_requires_grad();
  }
  const Interval mine = in_shard(entry, shard_index_);
  return view_of(storage, first_byte + (entry.offset + mine.begin - shard_begin()) * width,
                 Shape{mine.end - mine.begin}, Strides{1}, stepped_dtype())
      .set_requires_grad();
}

Flat::Interval Flat::in_shard(const Entry& entry, int64_t index) const {
  const int64_t low = index * shard_length() - entry.offset;
  const int64_t begin = std::clamp<int64_t>(low, 0, entry.count);
  const int64_t end = std::clamp<int64_t>(low + shard_length(), 0, entry.count);
  return {begin, end};
}

}  // namespace weft::dist::detail
