// A mesh: the ranks of a job as a grid of two axes. Along `shard` a model is split, along
// `replicate` the split repeats (hybrid sharding: Zhao et al. 2023, §3.2.2). Rank r stands at
// replicate r / shards, shard r % shards, so that neighbours, who often share a host, are of one
// shard group. With one replica it is plain sharding.
#pragma once

#include "dist/communicator.h"

#include <memory>

namespace weft::dist {

class Mesh {
 public:
  // `shards` must divide the number of ranks; 0 stands for all of them. A collective. `world` must
  // outlive the mesh.
  Mesh(Communicator& world, int shards);

  Communicator& world() const { return world_; }
  // The ranks that hold the shards of one replica; those that hold the same shard.
  Communicator& shard() const { return shard_ ? *shard_ : world_; }
  Communicator& replicate() const { return *replicate_; }
  // A second channel along the shard axis: what runs on it need not wait for what runs on the
  // first.
  Communicator& gather() const { return *gather_; }

  int shards() const { return shards_; }
  int replicas() const { return world_.size() / shards_; }
  // This rank's place on the shard axis.
  int shard_index() const { return world_.rank() % shards_; }

 private:
  Communicator& world_;
  int shards_;
  std::unique_ptr<Communicator> shard_;  // null: the world
  std::unique_ptr<Communicator> replicate_;
  std::unique_ptr<Communicator> gather_;
};

}  // namespace weft::dist
