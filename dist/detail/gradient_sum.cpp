#include "dist/detail/gradient_sum.h"

#include "autograd/grad_mode.h"
#include "dist/detail/settle.h"
#include "dist/redistribute.h"
#include "dist/tree.h"
#include "ops/copy.h"

#include <algorithm>
#include <cstring>

namespace weft::dist::detail {
namespace {

bool is_16_bit(DType dtype) {
  return dtype == f16 || dtype == bf16;
}

// Whether there are sums that are added to others later on.
bool adds_in_stages(const Mesh& mesh, int64_t leaves) {
  return leaves > mesh.world().size() || (mesh.shards() > 1 && mesh.replicas() > 1);
}

}  // namespace

GradientSum::GradientSum(const Flat& flat, const Mesh& mesh, Rest rest, ShardOrder order,
                         int64_t leaves, DType result)
    : flat_(flat),
      mesh_(mesh),
      rest_(mesh.shards() == 1 ? Rest::replicated : rest),
      order_(order),
      leaves_(leaves),
      sum_dtype_(is_16_bit(flat.dtype()) && adds_in_stages(mesh, leaves) ? f32 : flat.dtype()),
      result_dtype_(result),
      landed_(flat.entries().size()),
      used_(flat.entries().size()) {
  // Memory that rests between steps is there from the start: what a strategy needs is known before
  // the first step.
  if (rest_ == Rest::replicated) landing_ = allocate(flat.length(), flat.dtype());
  if (keeps_result()) resident_ = allocate(flat.shard_length(), result_dtype_);
}

GradientSum::~GradientSum() {
  settle(handle_);  // it reads and writes what is freed now
}

Ref<Storage> GradientSum::allocate(int64_t elements, DType dtype) const {
  const CategoryScope category(Category::gradients);
  Communicator& axis = mesh_.shards() > 1 ? mesh_.shard() : mesh_.replicate();
  return axis.allocate(elements * size_of(dtype));
}

bool GradientSum::is_landing(const Held& held) const {
  return held.dtype == flat_.dtype() &&
         held.storage->bytes() == flat_.length() * size_of(held.dtype);
}

Elements GradientSum::elements(const Held& held, int64_t count) const {
  return {held.storage->data() + held.byte, count, held.dtype};
}

std::vector<Part> GradientSum::parts_of(const std::vector<Held>& held, int64_t count) const {
  std::vector<Part> parts;
  for (const Held& part : held)
    parts.push_back({part.node, elements(part, count)});
  return parts;
}

// ---- landing ----

Tensor GradientSum::home(size_t entry) {
  const Flat::Entry& place = flat_.entries()[entry];
  WEFT_CHECK(!completed_, "parallel",
             "expected one backward for each logical shard, got a second "
             "gradient of ",
             place.name, " after its sum had been started");
  if (!landing_) {
    wait();  // its landing buffer may be in flight still
    landing_ = allocate(flat_.length(), flat_.dtype());
  }
  return view_of(landing_, place.offset * size_of(flat_.dtype()), place.shape, place.strides,
                 flat_.dtype());
}

void GradientSum::landed(size_t entry) {
  landed_[entry] = true;
  ++landed_count_;
}

void GradientSum::clear_what_did_not_land() {
  if (!landing_) landing_ = allocate(flat_.length(), flat_.dtype());
  const int64_t width = size_of(flat_.dtype());
  int64_t filled = 0;
  const auto clear = [&](int64_t begin, int64_t end) {
    std::memset(landing_->data() + begin * width, 0, static_cast<size_t>((end - begin) * width));
  };
  for (size_t i = 0; i < landed_.size(); ++i) {
    if (!landed_[i]) continue;
    const Flat::Entry& entry = flat_.entries()[i];
    clear(filled, entry.offset);
    filled = entry.offset + entry.count;
    used_[i] = true;
  }
  clear(filled, flat_.length());
}

void GradientSum::begin_shard() {
  std::fill(landed_.begin(), landed_.end(), false);
  landed_count_ = 0;
  completed_ = false;
}

void GradientSum::begin_step() {
  abandon();
  std::fill(used_.begin(), used_.end(), false);
}

void GradientSum::abandon() {
  replicate_due_ = false;
  wait();
  if (!held_.empty()) {
    const Held& first = held_.front();
    if (rest_ == Rest::replicated && !landing_ && is_landing(first)) {
      landing_ = first.storage;
    } else if (keeps_result() && !resident_ && first.dtype == result_dtype_ &&
               first.storage->bytes() == flat_.shard_length() * size_of(result_dtype_)) {
      resident_ = first.storage;
    }
  }
  held_.clear();
  drop_result();
}

// ---- sums ----

void GradientSum::complete(const Shard& shard, int64_t round, bool last) {
  wait();
  completed_ = true;
  std::vector<Held> fresh;
  if (!shard.ghost) {
    clear_what_did_not_land();
    const Node leaf{0, static_cast<int32_t>(shard.index)};
    fresh.push_back({raised(leaf, leaves_), std::exchange(landing_, {}), 0, flat_.dtype()});
  }
  const int64_t shards = mesh_.shards();
  const int64_t ranks = mesh_.world().size();
  const int64_t replica = mesh_.world().rank() / shards;
  if (order_ == ShardOrder::contiguous || shards == 1) {
    if (!fresh.empty()) add_up(std::move(fresh.front()));
    if (!last) return;
    if (shards == 1) {
      start_replicate_axis();
      return;
    }
    const int64_t first = replica * shards * leaves_ / ranks;
    const int64_t end = (replica + 1) * shards * leaves_ / ranks;
    start_shard_axis(std::exchange(held_, {}), {}, last, covering(first, end - first, leaves_));
  } else {
    const int64_t first = std::min(leaves_, round * ranks + replica * shards);
    std::vector<Node> nodes;
    for (const Held& held : held_)
      nodes.push_back(held.node);
    for (int64_t leaf = first; leaf < std::min(leaves_, first + shards); ++leaf)
      nodes.push_back({0, static_cast<int32_t>(leaf)});
    start_shard_axis(std::move(fresh), std::exchange(held_, {}), last, merged(nodes, leaves_));
  }
}

// Adds a leaf to the sums this rank has: in place on the node that it completes.
void GradientSum::add_up(Held fresh) {
  std::vector<Node> nodes;
  for (const Held& held : held_)
    nodes.push_back(held.node);
  nodes.push_back(fresh.node);
  const Node sum = merged(nodes, leaves_).back();
  if (sum == fresh.node && fresh.dtype == sum_dtype_) {
    held_.push_back(std::move(fresh));
    return;
  }
  const auto first = std::find_if(held_.begin(), held_.end(), [&](const Held& held) {
    return first_leaf(held.node) >= first_leaf(sum);
  });
  std::vector<Held> inputs(std::make_move_iterator(first), std::make_move_iterator(held_.end()));
  held_.erase(first, held_.end());
  Held result{sum, {}, 0, sum_dtype_};
  result.storage = inputs.empty() ? allocate(flat_.length(), sum_dtype_) : inputs.front().storage;
  landing_ = fresh.storage;  // free again after the sum
  inputs.push_back(std::move(fresh));
  fold(parts_of(inputs, flat_.length()), parts_of({result}, flat_.length()), leaves_);
  held_.push_back(std::move(result));
}

void GradientSum::start_shard_axis(std::vector<Held> parts, std::vector<Held> pending, bool last,
                                   std::span<const Node> sums) {
  const bool final = last && mesh_.replicas() == 1;
  const DType dtype = final ? result_dtype_ : sum_dtype_;
  const int64_t length = flat_.shard_length();
  for (const Node node : sums) {
    Held result{node, {}, 0, dtype};
    const auto under = std::find_if(pending.begin(), pending.end(), [&](const Held& held) {
      return first_leaf(held.node) == first_leaf(node);
    });
    if (under != pending.end() && under->dtype == dtype) {
      result.storage = under->storage;
    } else if (rest_ == Rest::replicated && held_.empty() && parts.front().dtype == dtype) {
      result.storage = parts.front().storage;
      result.byte = flat_.shard_begin() * size_of(dtype);
    } else if (resident_ && dtype == result_dtype_) {
      result.storage = std::exchange(resident_, {});
    } else {
      result.storage = allocate(length, dtype);
    }
    held_.push_back(std::move(result));
  }
  Call move = sum_slice_move(parts_of(parts, flat_.length()), parts_of(pending, length),
                             parts_of(held_, length), leaves_, flat_.tag());
  if (order_ == ShardOrder::strided) move.parts_dtype = flat_.dtype();  // a ghost brings none
  handle_ = mesh_.shard().start(move);
  in_flight_ = std::move(parts);
  in_flight_.insert(in_flight_.end(), std::make_move_iterator(pending.begin()),
                    std::make_move_iterator(pending.end()));
  replicate_due_ = last && mesh_.replicas() > 1;
}

// From what this replica has to the sum over all of them.
void GradientSum::start_replicate_axis() {
  const int64_t length = mesh_.shards() == 1 ? flat_.length() : flat_.shard_length();
  if (mesh_.replicas() == 1 && held_.front().dtype == result_dtype_) return;  // one rank: done
  Held result{root_of(leaves_), {}, 0, result_dtype_};
  if (held_.front().dtype == result_dtype_) {
    result.storage = held_.front().storage;
    result.byte = held_.front().byte;
  } else if (landing_ && result_dtype_ == flat_.dtype()) {
    result.storage = std::exchange(landing_, {});
  } else {
    result.storage = resident_ ? std::exchange(resident_, {}) : allocate(length, result_dtype_);
  }
  handle_ = mesh_.replicate().start(
      sum_move(parts_of(held_, length), parts_of({result}, length), leaves_, flat_.tag()));
  in_flight_ = std::exchange(held_, {});
  held_.push_back(std::move(result));
}

void GradientSum::wait() {
  if (handle_.valid()) std::exchange(handle_, {}).wait();
  let_go();
  if (!std::exchange(replicate_due_, false)) return;
  start_replicate_axis();
  if (handle_.valid()) std::exchange(handle_, {}).wait();
  let_go();
}

// Of what a call that has ended has read. A landing buffer that is to rest stays.
void GradientSum::let_go() {
  for (const Held& read : std::exchange(in_flight_, {})) {
    const bool in_use = std::any_of(held_.begin(), held_.end(),
                                    [&](const Held& held) { return held.storage == read.storage; });
    if (rest_ == Rest::replicated && !landing_ && !in_use && is_landing(read))
      landing_ = read.storage;
  }
}

Tensor GradientSum::result() {
  const Held& sums = held_.front();
  const Shape shape{flat_.shard_length()};
  const Tensor narrow = view_of(sums.storage, sums.byte, shape, Strides{1}, sums.dtype);
  const DType wanted = flat_.stepped_dtype();
  if (sums.dtype == wanted) return narrow;
  const CategoryScope category(Category::gradients);
  if (!widened_) {
    widened_ = Storage::allocate(shape.numel() * size_of(wanted));
    const NoGrad no_grad;
    copy_(view_of(widened_, 0, shape, Strides{1}, wanted), narrow);
  }
  return view_of(widened_, 0, shape, Strides{1}, wanted);
}

}  // namespace weft::dist::detail
