// The strategies. Whatever a rank holds for training is three things: parameters P, gradients G,
// optimizer state O. Each rests replicated (every rank has all of it) or sharded (every rank has
// its share). A strategy is which of them is sharded, and nothing else; the engine
// (dist/parallel.h) reads these rows.
//
//   strategy      P G O   collectives of one step
//   single, ddp   R R R   all-reduce G
//   zero1         R R S   reduce-scatter G, all-gather P
//   zero2         R S S   reduce-scatter G (every micro-batch), all-gather P
//   zero3, fsdp   S S S   all-gather P before forward and before backward, reduce-scatter G
//
// (Rajbhandari et al. 2020, "ZeRO", §5; Zhao et al. 2023, "PyTorch FSDP", §3.)
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weft::dist {

enum class Rest : uint8_t { replicated, sharded };

struct Plan {
  std::string_view name;
  Rest parameters;
  Rest gradients;
  Rest optimizer;
};

inline constexpr Plan kPlans[] = {
    {"single", Rest::replicated, Rest::replicated, Rest::replicated},
    {"ddp", Rest::replicated, Rest::replicated, Rest::replicated},
    {"zero1", Rest::replicated, Rest::replicated, Rest::sharded},
    {"zero2", Rest::replicated, Rest::sharded, Rest::sharded},
    {"zero3", Rest::sharded, Rest::sharded, Rest::sharded},
    {"fsdp", Rest::sharded, Rest::sharded, Rest::sharded},
};

// Throws an Error that lists the names.
const Plan& plan_named(std::string_view name);

}  // namespace weft::dist
