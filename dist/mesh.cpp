#include "dist/mesh.h"

namespace weft::dist {

Mesh::Mesh(Communicator& world, int shards)
    : world_(world), shards_(shards ? shards : world.size()) {
  WEFT_CHECK(shards_ > 0 && world.size() % shards_ == 0, "mesh",
             "expected a number of shards that divides the ", world.size(), " ranks, got ", shards);
  const int replica = world.rank() / shards_;
  const int index = world.rank() % shards_;
  if (replicas() > 1) shard_ = world.split(replica, index, "shard");
  replicate_ = world.split(index, replica, "replicate");
  gather_ = world.split(replica, index, "gather");
}

}  // namespace weft::dist
