// Communicator: how the ranks of a job exchange data.
//
//   comm.all_reduce(gradients);                              // every rank: the sum
//   Handle h = comm.start_all_gather(shard, whole); …; h.wait();
//
// Every rank of a communicator calls the same collectives in the same order. Each call carries a
// contract (collective, reduction, count, dtype, root, tag, sequence number) that ranks compare:
// where they differ, every rank gets a ContractError that names both calls, and no data is swapped
// silently. A rank that is dead, has left with an error, or does not arrive within the timeout
// makes the call fail on every rank with one CommunicationError, the verdict: which rank, which
// collective, which unit. After an error a communicator is broken: all further calls repeat the
// verdict.
//
// Started calls run in order on a thread of the communicator's own; a call that is not started but
// called runs on the calling thread unless earlier ones are still under way. One thread calls a
// communicator at a time.
#pragma once

#include "dist/collective.h"
#include "dist/recorder.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace weft::dist {

// A collective did not complete; the text is the verdict, the same on every rank.
class CommunicationError : public Error {
 public:
  using Error::Error;
};
// Ranks called different things.
class ContractError : public CommunicationError {
 public:
  using CommunicationError::CommunicationError;
};

// One collective as a value. The functions of Communicator fill it in.
struct Call {
  Collective collective = Collective::barrier;
  ReduceOp op = ReduceOp::sum;
  int root = 0;  // of broadcast, reduce, gather, scatter; the peer of send and recv
  Elements in = {};
  Elements out = {};
  Tag tag = {};
  // all_reduce and reduce_scatter of tree nodes instead of one leaf a rank: see below.
  std::vector<Part> parts = {};
  std::vector<Part> pending = {};
  std::vector<Part> results = {};
  int64_t leaves = 0;
  // Of the parts of all ranks, for a rank that has none itself: the results' unless given.
  std::optional<DType> parts_dtype = {};
};

// A collective under way.
class Handle {
 public:
  Handle() = default;  // of nothing: already done
  // Waits until it has completed; throws what it threw. Memory may be touched again from then on.
  void wait();
  bool done() const;
  bool valid() const { return static_cast<bool>(state_); }

  struct State;
  explicit Handle(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // "thread", "shm", "tcp", "gloo", "mpi"
  virtual const char* backend() const = 0;
  // "world", or what split() made of it: "world/shard[0]".
  virtual const std::string& name() const = 0;
  // Shared by a world and all that was split from it.
  virtual Recorder& recorder() = 0;

  // Memory that all ranks can reach directly, so that collectives on it copy nothing on their way:
  // 64-byte aligned, zeroed, charged to this thread's ledger and category. Not a collective. Where
  // a backend has no such memory it is ordinary memory. May outlive the communicator.
  virtual Ref<Storage> allocate(int64_t bytes) = 0;

  // Runs a call to its end, or starts it. Nothing is read or written before all ranks have agreed
  // on the contract.
  virtual void run(const Call& call) = 0;
  [[nodiscard]] virtual Handle start(const Call& call) = 0;
  // Waits for everything started.
  virtual void wait_all() = 0;

  // A communicator of the ranks that give the same color, ordered by (key, rank). A collective;
  // `label` names it, and a negative color gets null.
  virtual std::unique_ptr<Communicator> split(int color, int key, const std::string& label) = 0;

  // This rank gives up: every other rank's present or next collective fails with `reason` in its
  // verdict. Also what the destructor does, without a reason, if an exception is unwinding it.
  virtual void abort(const std::string& reason) = 0;

  // ---- collectives; counts may be 0 ----

  // values = reduction over ranks, on every rank.
  void all_reduce(const Elements& values, ReduceOp op = ReduceOp::sum, Tag tag = {});
  // `in` holds size() * out.count elements; out = the reduction of the rank()-th piece. `out` may
  // be that piece of `in` itself.
  void reduce_scatter(const Elements& in, const Elements& out, ReduceOp op = ReduceOp::sum,
                      Tag tag = {});
  // `out` holds size() * in.count elements: all ranks' `in` in rank order. `in` may be the
  // rank()-th piece of `out`.
  void all_gather(const Elements& in, const Elements& out, Tag tag = {});
  void broadcast(const Elements& values, int root, Tag tag = {});
  // The reduction arrives in root's `values`; those of others are unchanged.
  void reduce(const Elements& values, int root, ReduceOp op = ReduceOp::sum, Tag tag = {});
  // `out` (size() * in.count elements) is looked at on root only; so is `in` of scatter.
  void gather(const Elements& in, const Elements& out, int root, Tag tag = {});
  void scatter(const Elements& in, const Elements& out, int root, Tag tag = {});
  // Piece p of `in` goes to rank p; piece p of `out` came from rank p. Equal counts; must not
  // overlap.
  void all_to_all(const Elements& in, const Elements& out, Tag tag = {});
  // Of two ranks only. The contract is compared between the two.
  void send(const Elements& values, int to, Tag tag = {});
  void recv(const Elements& values, int from, Tag tag = {});
  void barrier();

  [[nodiscard]] Handle start_all_reduce(const Elements& values, ReduceOp op = ReduceOp::sum,
                                        Tag tag = {});
  [[nodiscard]] Handle start_reduce_scatter(const Elements& in, const Elements& out,
                                            ReduceOp op = ReduceOp::sum, Tag tag = {});
  [[nodiscard]] Handle start_all_gather(const Elements& in, const Elements& out, Tag tag = {});

  // ---- sums of tree nodes (dist/tree.h) ----
  // A rank may contribute any number of nodes, also none, of a tree over `leaves` leaves; the nodes
  // of all ranks are disjoint, and all have the same count and dtype; a rank without any says which
  // (Call::parts_dtype) if it is not the results'. Ranks know each other's nodes by exchanging
  // them.

  // On every rank, `results` become the nodes that all contributions add up to (merged() of them
  // all): usually one, the root. A result may lie on one of this rank's parts.
  static Call all_reduce_nodes(std::vector<Part> parts, std::vector<Part> results, int64_t leaves,
                               Tag tag = {});
  // The same for the rank()-th piece: parts hold size() * n elements, results n. `pending` are
  // nodes of n elements that only this rank's piece has: sums of earlier reduce-scatters.
  static Call reduce_scatter_nodes(std::vector<Part> parts, std::vector<Part> pending,
                                   std::vector<Part> results, int64_t leaves, Tag tag = {});

 protected:
  Communicator() = default;
};

struct CommunicatorOptions {
  double timeout_seconds = 120;  // for a rank that is alive but does not come
};

}  // namespace weft::dist
