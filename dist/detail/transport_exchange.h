// One collective over messages: what this rank says when it meets the others, and how the data move
// that did not fit in there.
#pragma once

#include "dist/detail/transport_communicator.h"

#include <functional>
#include <vector>

namespace weft::dist::detail {

// Sums and products of large data: the buffer is cut into a slice for each rank; ranks send each
// other's slices in chunks, each folds its own, and sends the result on where others need it. A few
// chunks are under way at a time: while one is being folded the next ones travel.
class TransportCommunicator::Exchange {
 public:
  Exchange(TransportCommunicator& communicator, Present& present);
  void run();

 private:
  // A slice of a buffer for each rank, and its chunks.
  struct Slices {
    int64_t slice = 0;  // elements between the beginnings of two slices
    int64_t count = 0;  // of the buffer
    int64_t chunk = 0;  // elements at a time
    int64_t begin(int r) const { return std::min(count, slice * r); }
    int64_t chunks() const { return slice == 0 ? 0 : (slice + chunk - 1) / chunk; }
    int64_t at(int r, int64_t c) const { return begin(r) + c * chunk; }
    int64_t length(int r, int64_t c) const {
      const int64_t end = std::min(count, slice * (r + 1));
      return std::max<int64_t>(0, std::min(chunk, end - at(r, c)));
    }
  };
  struct Move {
    int peer;
    std::byte* data;
    int64_t bytes;
  };
  // Chunks that are under way at a time.
  static constexpr int64_t kDepth = 3;

  void meet();
  void check_results();
  void fold_inside();
  void move_inside();
  void reduce();
  void broadcast();
  void move();
  void move(const std::vector<Move>& out, const std::vector<Move>& in);
  // ---- where ranks share hosts: transport_hosts.cpp ----
  bool run_by_host();
  void all_reduce_by_host(const std::vector<Part>& parts, const std::vector<Part>& results);
  void all_reduce_rest_by_host(int64_t begin);
  void reduce_scatter_by_host();
  void all_gather_by_host();
  void broadcast_by_host();
  std::vector<Node> nodes_of_host() const;
  DType dtype_of_parts() const;
  DType dtype_of_sums() const;

  // Runs start(c, slot) for all chunks, kDepth ahead of finish(c, slot).
  void pipeline(int64_t chunks, const std::function<void(int64_t, size_t)>& start,
                const std::function<void(int64_t, size_t)>& finish);

  std::vector<Part> targets() const;
  void fold(std::vector<Part> inputs, const std::vector<Part>& targets) const;
  Slices slices(int64_t chunk) const;

  int size() const { return c_.size(); }
  int rank() const { return c_.rank(); }
  bool nodes() const { return call_.leaves > 0; }
  int64_t leaves() const { return nodes() ? call_.leaves : size(); }
  bool scatters() const { return call_.collective == Collective::reduce_scatter; }
  // Of the others, nearest to the right first, so that not all turn to one at a time.
  int right(int i) const { return (rank() + i) % size(); }
  int left(int i) const { return (rank() + size() - i) % size(); }
  const std::byte* message(int r) const;
  const Envelope& envelope(int r) const { return *reinterpret_cast<const Envelope*>(message(r)); }
  const Node* nodes_of(int r) const {
    return reinterpret_cast<const Node*>(message(r) + sizeof(Envelope));
  }
  // A piece of rank r's part, out of its message.
  std::byte* inside(int r, int part, int piece) const;

  TransportCommunicator& c_;
  Present& present_;
  const Call& call_;
  const size_t slot_;
  int pieces_ = 1;
  int64_t count_ = 0;  // of a piece
  DType dtype_ = f32;
  DType result_dtype_ = f32;
  std::vector<Part> parts_;    // this rank's
  std::vector<Part> results_;  // this rank's, from left to right in the tree
  bool all_inside_ = true;
};

}  // namespace weft::dist::detail
