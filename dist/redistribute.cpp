#include "dist/redistribute.h"

#include "dist/tree.h"

#include <cstring>

namespace weft::dist {

std::string to_string(Placement placement) {
  switch (placement) {
    case Placement::replicated:
      return "replicated";
    case Placement::sharded:
      return "sharded";
    default:
      return "partial";
  }
}

Call gather_move(const Elements& shard, const Elements& whole, Tag tag) {
  Call call;
  call.collective = Collective::all_gather;
  call.in = shard;
  call.out = whole;
  call.tag = tag;
  return call;
}

Elements slice_move(const Elements& whole, const Communicator& comm) {
  const int64_t count = whole.count / comm.size();
  return whole.part(comm.rank() * count, count);
}

Tensor redistribute(const Tensor& values, Placement from, Placement to, Communicator& comm) {
  WEFT_CHECK(values.dims() == 1 && values.is_contiguous(), "redistribute",
             "expected a flat buffer, got shape ", values.shape(), " and strides ",
             values.strides());
  const int64_t ranks = comm.size();
  WEFT_CHECK(from == Placement::sharded || values.numel() % ranks == 0, "redistribute",
             "expected a length that ", ranks, " ranks divide, got ", values.numel());
  if (from == Placement::sharded && to == Placement::replicated) {
    const Tensor whole = empty({values.numel() * ranks}, values.options());
    comm.run(gather_move(values, whole));
    return whole;
  }
  const int64_t share = values.numel() / ranks;
  if (from == Placement::replicated && to == Placement::sharded)
    return alias(values, {share}, {1}, comm.rank() * share);
  WEFT_CHECK(from == Placement::partial && to != Placement::partial, "redistribute",
             "expected sharded to replicated, replicated to sharded, or partial to either, got ",
             from, " to ", to);
  const Part mine{raised({0, comm.rank()}, ranks), values};
  if (to == Placement::replicated) {
    const Tensor sum = empty(values.shape(), values.options());
    comm.run(sum_move({mine}, {{root_of(ranks), sum}}, ranks));
    return sum;
  }
  const Tensor sum = empty({share}, values.options());
  comm.run(sum_slice_move({mine}, {}, {{root_of(ranks), sum}}, ranks));
  return sum;
}

}  // namespace weft::dist
