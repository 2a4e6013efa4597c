// What of the parameters lies on this rank between steps.
#include "dist/detail/engine.h"

namespace weft::dist {

std::vector<Parallel::Held> Parallel::Engine::held() const {
  WEFT_CHECK(phase_ != Phase::in_shard, "parallel",
             "expected held() outside of a shard, got it within one");
  std::vector<Held> all;
  for (const auto& unit : units_) {
    for (const auto& flat : unit->flats) {
      for (const auto& entry : flat->entries()) {
        detail::Flat::Interval part{0, entry.count};
        int64_t at = entry.offset;  // element of the resting buffer
        if (flat->sharded() && entry.count > 0) {
          part = flat->in_shard(entry, mesh_.shard_index());
          if (part.begin == part.end) continue;
          at += part.begin - flat->shard_begin();
        }
        // Of a parameter without elements everybody holds all.
        const bool everywhere = !flat->sharded() || entry.count == 0;
        if (entry.count == 0) at = 0;
        all.push_back({entry.name, entry.shape, entry.strides, part.begin,
                       view_of(flat->shard_storage(), at * size_of(flat->dtype()),
                               Shape{part.end - part.begin}, Strides{1}, flat->dtype()),
                       everywhere ? comm.rank() : comm.rank() / mesh_.shards(),
                       everywhere ? comm.size() : mesh_.replicas()});
      }
    }
  }
  return all;
}

std::vector<Parallel::Held> Parallel::held() const {
  return engine_->held();
}

int Parallel::replica() const {
  return engine_->comm.rank() / engine_->mesh().shards();
}

int Parallel::replicas() const {
  return engine_->mesh().replicas();
}

}  // namespace weft::dist
