#include "dist/communicator.h"

namespace weft::dist {

// What operates in place has the same memory as `in` and as `out`.

void Communicator::all_reduce(const Elements& values, ReduceOp op, Tag tag) {
  run({.collective = Collective::all_reduce, .op = op, .in = values, .out = values, .tag = tag});
}

void Communicator::reduce_scatter(const Elements& in, const Elements& out, ReduceOp op, Tag tag) {
  run({.collective = Collective::reduce_scatter, .op = op, .in = in, .out = out, .tag = tag});
}

void Communicator::all_gather(const Elements& in, const Elements& out, Tag tag) {
  run({.collective = Collective::all_gather, .in = in, .out = out, .tag = tag});
}

void Communicator::broadcast(const Elements& values, int root, Tag tag) {
  run({.collective = Collective::broadcast, .root = root, .in = values, .out = values, .tag = tag});
}

void Communicator::reduce(const Elements& values, int root, ReduceOp op, Tag tag) {
  run({.collective = Collective::reduce,
       .op = op,
       .root = root,
       .in = values,
       .out = values,
       .tag = tag});
}

void Communicator::gather(const Elements& in, const Elements& out, int root, Tag tag) {
  run({.collective = Collective::gather, .root = root, .in = in, .out = out, .tag = tag});
}

void Communicator::scatter(const Elements& in, const Elements& out, int root, Tag tag) {
  run({.collective = Collective::scatter, .root = root, .in = in, .out = out, .tag = tag});
}

void Communicator::all_to_all(const Elements& in, const Elements& out, Tag tag) {
  run({.collective = Collective::all_to_all, .in = in, .out = out, .tag = tag});
}

void Communicator::send(const Elements& values, int to, Tag tag) {
  run({.collective = Collective::send, .root = to, .in = values, .tag = tag});
}

void Communicator::recv(const Elements& values, int from, Tag tag) {
  run({.collective = Collective::recv, .root = from, .out = values, .tag = tag});
}

void Communicator::barrier() {
  run({.collective = Collective::barrier});
}

Handle Communicator::start_all_reduce(const Elements& values, ReduceOp op, Tag tag) {
  return start(
      {.collective = Collective::all_reduce, .op = op, .in = values, .out = values, .tag = tag});
}

Handle Communicator::start_reduce_scatter(const Elements& in, const Elements& out, ReduceOp op,
                                          Tag tag) {
  return start(
      {.collective = Collective::reduce_scatter, .op = op, .in = in, .out = out, .tag = tag});
}

Handle Communicator::start_all_gather(const Elements& in, const Elements& out, Tag tag) {
  return start({.collective = Collective::all_gather, .in = in, .out = out, .tag = tag});
}

Call Communicator::all_reduce_nodes(std::vector<Part> parts, std::vector<Part> results,
                                    int64_t leaves, Tag tag) {
  return {.collective = Collective::all_reduce,
          .tag = tag,
          .parts = std::move(parts),
          .results = std::move(results),
          .leaves = leaves};
}

Call Communicator::reduce_scatter_nodes(std::vector<Part> parts, std::vector<Part> pending,
                                        std::vector<Part> results, int64_t leaves, Tag tag) {
  return {.collective = Collective::reduce_scatter,
          .tag = tag,
          .parts = std::move(parts),
          .pending = std::move(pending),
          .results = std::move(results),
          .leaves = leaves};
}

}  // namespace weft::dist
