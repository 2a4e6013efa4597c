#include "dist/detail/buffer_mean.h"

#include "autograd/grad_mode.h"
#include "dist/detail/point_tensor.h"
#include "dist/tree.h"
#include "ops/copy.h"

#include <cstring>

namespace weft::dist::detail {
namespace {

// Collectives know no bool; as bytes of 0 and 1 the largest of all is true if any is.
DType travels_as(DType dtype) {
  return dtype == boolean ? u8 : dtype;
}

void copy_storage(const Ref<Storage>& to, const Ref<Storage>& from) {
  std::memcpy(to->data(), from->data(), static_cast<size_t>(to->bytes()));
  to->bump_version();
}

Tensor flat(const Ref<Storage>& values, DType dtype) {
  return view_of(values, 0, {values->bytes() / size_of(dtype)}, Strides{1}, dtype);
}

void divide(const Tensor& values, double by) {
  const auto scale = [&]<class T>(T* at) {
    for (int64_t i = 0; i < values.numel(); ++i)
      at[i] = static_cast<T>(static_cast<double>(at[i]) / by);
  };
  if (values.dtype() == f64) {
    scale(values.data<double>());
  } else {
    scale(values.data<float>());
  }
}

}  // namespace

BufferMean::BufferMean(nn::Module& model, Communicator& comm, int64_t leaves,
                       std::optional<DType> floating_dtype)
    : comm_(comm), leaves_(leaves) {
  const NoGrad no_grad;
  const CategoryScope category(Category::parameters);
  const auto buffers = model.named_buffers();
  const auto wanted = [&](const Tensor& buffer) {
    return floating_dtype && is_floating(buffer.dtype()) ? *floating_dtype : buffer.dtype();
  };
  for (const DType dtype : {f32, f64, bf16, f16, i64, i32, u8, boolean}) {
    Group group{dtype, {}, {}};
    for (const auto& [name, buffer] : buffers) {
      if (wanted(buffer) == dtype) group.count += (buffer.numel() + 15) / 16 * 16;
    }
    if (group.count == 0) continue;
    group.values = Storage::allocate(group.count * size_of(dtype));
    group.first = Storage::allocate(group.count * size_of(dtype));
    std::memset(group.values->data(), 0, static_cast<size_t>(group.values->bytes()));
    int64_t at = 0;
    for (const auto& [name, buffer] : buffers) {
      if (wanted(buffer) != dtype) continue;
      const Tensor value = to(buffer.is_dense() ? buffer : contiguous(buffer), dtype);
      const Tensor place =
          view_of(group.values, at * size_of(dtype), value.shape(), value.strides(), dtype);
      std::memcpy(place.raw(), value.raw(), static_cast<size_t>(value.bytes()));
      point_tensor(buffer, place);
      at += (value.numel() + 15) / 16 * 16;
    }
    comm.broadcast({group.values->data(), group.count, travels_as(dtype)}, 0, {"buffers"});
    groups_.push_back(std::move(group));
  }
}

void BufferMean::begin_step(bool last_came_to_nothing) {
  if (last_came_to_nothing) begin_shard();
  counted_ = 0;
  for (Group& group : groups_) {
    group.sums.clear();
    group.memory.clear();
    copy_storage(group.first, group.values);
  }
}

void BufferMean::begin_shard() {
  for (Group& group : groups_)
    copy_storage(group.values, group.first);
}

void BufferMean::restore() {
  begin_shard();
}

void BufferMean::end_shard(const Shard& shard, bool counts) {
  if (leaves_ == 1 || shard.ghost) return;
  counted_ += counts;
  for (Group& group : groups_)
    add_up(group, shard, counts);
}

void BufferMean::add_up(Group& group, const Shard& shard, bool counts) {
  if (!is_floating(group.dtype)) return;
  const CategoryScope category(Category::parameters);
  const NoGrad no_grad;
  const DType dtype = compute_dtype(group.dtype);
  Ref<Storage> fresh = Storage::allocate(group.count * size_of(dtype));
  copy_(flat(fresh, dtype), flat(group.values, group.dtype));
  if (!counts) std::memset(fresh->data(), 0, static_cast<size_t>(fresh->bytes()));
  const auto leaf = raised({0, static_cast<int32_t>(shard.index)}, leaves_);
  group.sums.push_back({leaf, {fresh->data(), group.count, dtype}});
  group.memory.push_back(std::move(fresh));
  std::vector<Node> nodes;
  for (const Part& sum : group.sums)
    nodes.push_back(sum.node);
  nodes = merged(nodes, leaves_);
  if (nodes.size() == group.sums.size()) return;
  // Only the last node is new; it lies where its first summand does.
  const size_t first = nodes.size() - 1;
  const Part result{nodes.back(), group.sums[first].values};
  fold(std::span(group.sums).subspan(first), {&result, 1}, leaves_);
  group.sums.resize(nodes.size());
  group.memory.resize(nodes.size());
  group.sums.back() = result;
}

void BufferMean::finish() {
  const NoGrad no_grad;
  if (leaves_ == 1 || groups_.empty()) return;
  comm_.all_reduce({&counted_, 1, f64}, ReduceOp::sum, {"buffers"});
  for (Group& group : groups_) {
    if (!is_floating(group.dtype)) {
      // Ranks whose last shard was a ghost, or held no sample, agree with the others.
      comm_.all_reduce({group.values->data(), group.count, travels_as(group.dtype)}, ReduceOp::max,
                       {"buffers"});
      continue;
    }
    const DType dtype = compute_dtype(group.dtype);
    const Ref<Storage> total =
        dtype == group.dtype ? group.values : Storage::allocate(group.count * size_of(dtype));
    const Part root{root_of(leaves_), {total->data(), group.count, dtype}};
    comm_.run(Communicator::all_reduce_nodes(std::exchange(group.sums, {}), {root}, leaves_,
                                             {"buffers", 0, group.count}));
    group.memory.clear();
    if (counted_ > 0) {
      divide(flat(total, dtype), counted_);
      if (total != group.values) copy_(flat(group.values, group.dtype), flat(total, dtype));
    } else {
      copy_storage(group.values, group.first);
    }
    group.values->bump_version();
  }
}

}  // namespace weft::dist::detail
