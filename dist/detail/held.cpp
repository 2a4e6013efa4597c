// What of the parameters lies on this rank between steps.
#include "dist/detail/engine.h"

namespace weft::dist {

std::vector<Parallel::Held> Parallel::Engine::held() const {
  WEFT_CHECK(phase_ != Phase::in_shard, "parallel",
             "expected held() outside of a shard, got it within one");
  std::vector<Held> all;
  for (const auto& unit : units_) {
    for (const auto& flat : unit->flats) {
      // Masters rest sharded whatever the parameters do.
      const bool in_shares = flat->sharded() || flat->has_masters();
      for (const auto& entry : flat->entries()) {
        Held& held = all.emplace_back(
            Held{entry.name, entry.shape, entry.strides, 0, {}, comm.rank(), comm.size()});
        if (entry.count == 0) {  // everybody holds all of it
          held.values = empty({0}, {.dtype = flat->stepped_dtype()});
        } else if (in_shares) {
          const auto part = flat->in_shard(entry, mesh_.shard_index());
          if (part.begin == part.end) {
            all.pop_back();
            continue;
          }
          held.begin = part.begin;
          held.values = alias(flat->stepped(entry).detach(), Shape{part.end - part.begin}, {1});
          held.holder = comm.rank() / mesh_.shards();
          held.holders = mesh_.replicas();
        } else {
          held.values = view_of(flat->shard_storage(), entry.offset * size_of(flat->dtype()),
                                Shape{entry.count}, Strides{1}, flat->dtype());
        }
      }
    }
  }
  return all;
}

void Parallel::Engine::held_changed() {
  const bool gathers = plan.parameters == Rest::replicated && mesh_.shards() > 1;
  for (const auto& unit : units_) {
    for (const auto& flat : unit->flats) {
      if (!flat->has_masters()) continue;
      flat->round_masters();
      if (gathers) mesh_.gather().all_gather(flat->shard(), flat->whole(), flat->tag());
      flat->shard_storage()->bump_version();
    }
  }
}

void Parallel::held_changed() {
  engine_->held_changed();
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
