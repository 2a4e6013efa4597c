#include "dist/detail/gradient_sum.h"

#include "dist/detail/settle.h"
#include "dist/redistribute.h"
#include "dist/tree.h"

#include <algorithm>
#include <cstring>

namespace weft::dist::detail {
namespace {

bool is_16_bit(DType dtype) {
  return dtype == f16 || dtype == bf16;
}

}  // namespace

GradientSum::GradientSum(const Flat& flat, const Mesh& mesh, Rest rest, ShardOrder order,
                         int64_t leaves)
    : flat_(flat),
      mesh_(mesh),
      rest_(mesh.shards() == 1 ? Rest::replicated : rest),
      order_(order),
      leaves_(leaves),
      sum_dtype_(is_16_bit(flat.dtype()) && leaves > mesh.world().size() ? f32 : flat.dtype()),
      landed_(flat.entries().size()),
      used_(flat.entries().size()) {
  // Memory that rests between steps is there from the start: what a strategy needs is known before
  // the first step.
  if (rest_ == Rest::replicated) {
    landing_ = allocate(flat.length(), flat.dtype());
  } else {
    resident_ = allocate(flat.shard_length(), flat.dtype());
  }
}

GradientSum::~GradientSum() {
  settle(handle_);  // it reads and writes what is freed now
}

Ref<Storage> GradientSum::allocate(int64_t elements, DType dtype) const {
  const CategoryScope category(Category::gradients);
  Communicator& axis = mesh_.shards() > 1 ? mesh_.shard() : mesh_.replicate();
  return axis.allocate(elements * size_of(dtype));
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
  if (!held_.empty() && held_.front().dtype == flat_.dtype()) {
    if (rest_ == Rest::replicated && !landing_) landing_ = held_.front().storage;
    if (rest_ == Rest::sharded &&
        held_.front().storage->bytes() == flat_.shard_length() * size_of(flat_.dtype()))
      resident_ = held_.front().storage;
  }
  held_.clear();
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
  const DType dtype = final ? flat_.dtype() : sum_dtype_;
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
    } else if (resident_ && dtype == flat_.dtype()) {
      result.storage = std::exchange(resident_, {});
    } else {
      result.storage = allocate(length, dtype);
    }
    held_.push_back(std::move(result));
  }
  handle_ =
      mesh_.shard().start(sum_slice_move(parts_of(parts, flat_.length()), parts_of(pending, length),
                                         parts_of(held_, length), leaves_, flat_.tag()));
  in_flight_ = std::move(parts);
  in_flight_.insert(in_flight_.end(), std::make_move_iterator(pending.begin()),
                    std::make_move_iterator(pending.end()));
  replicate_due_ = last && mesh_.replicas() > 1;
}

// From what this replica has to the sum over all of them.
void GradientSum::start_replicate_axis() {
  const int64_t length = mesh_.shards() == 1 ? flat_.length() : flat_.shard_length();
  if (mesh_.replicas() == 1 && held_.front().dtype == flat_.dtype()) return;  // one rank: done
  Held result{root_of(leaves_), {}, 0, flat_.dtype()};
  if (held_.front().dtype == flat_.dtype()) {
    result.storage = held_.front().storage;
    result.byte = held_.front().byte;
  } else if (landing_) {
    result.storage = std::exchange(landing_, {});
  } else {
    result.storage = resident_ ? std::exchange(resident_, {}) : allocate(length, flat_.dtype());
  }
  handle_ = mesh_.replicate().start(
      sum_move(parts_of(held_, length), parts_of({result}, length), leaves_, flat_.tag()));
  in_flight_ = std::exchange(held_, {});
  held_.push_back(std::move(result));
}

void GradientSum::wait() {
  if (handle_.valid()) std::exchange(handle_, {}).wait();
  in_flight_.clear();
  if (!std::exchange(replicate_due_, false)) return;
  start_replicate_axis();
  if (handle_.valid()) std::exchange(handle_, {}).wait();
  in_flight_.clear();
}

}  // namespace weft::dist::detail
