// Counter-based randomness: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1,
// 2, 3", SC 2011, §3). A draw depends on (seed, step, shard, stream, index) and on nothing else:
// not on thread count, rank count, device, or what was drawn before.
#pragma once

#include <array>
#include <cstdint>

namespace weft {

// Names a sequence of draws.
struct RandomKey {
  uint64_t seed = 0;
  uint64_t step = 0;    // training step
  uint32_t shard = 0;   // logical shard of the global batch
  uint32_t stream = 0;  // which use of randomness within the step
};

// The generator itself: ten rounds over a 128-bit counter under a 64-bit key.
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Four 32-bit words: draws 4*block .. 4*block+3 of the sequence. (seed, step, shard, stream) is
// itself put through the generator to make a 64-bit key and the upper half of the counter; the
// lower half is the block. The generator being a bijection, sequences of one seed never coincide.
std::array<uint32_t, 4> philox(const RandomKey& key, uint64_t block);

// Draw `index` of the sequence: 32 random bits; a float in [0, 1) with 24 random bits; an integer
// in [0, bound), made from draws 2*index and 2*index+1 (its bias is below bound / 2^64).
uint32_t random_bits(const RandomKey& key, uint64_t index);
float random_uniform(const RandomKey& key, uint64_t index);
uint64_t random_below(const RandomKey& key, uint64_t index, uint64_t bound);

// Fill with values first, first+1, … of the sequence: uniform in [0, 1), or standard normal by
// Box–Muller on pairs of draws. A double takes two draws. Filling in pieces gives the bits of
// filling at once; large fills use this thread's num_threads().
void fill_uniform(const RandomKey& key, uint64_t first, float* out, int64_t count);
void fill_uniform(const RandomKey& key, uint64_t first, double* out, int64_t count);
void fill_normal(const RandomKey& key, uint64_t first, float* out, int64_t count);
void fill_normal(const RandomKey& key, uint64_t first, double* out, int64_t count);

// The per-thread position from which operators (rand, dropout, …) take their keys. Every operator
// takes the next stream, so a program that runs the same operators in the same step draws the same
// values.
struct RandomState {
  uint64_t seed = 0;
  uint64_t step = 0;
  uint32_t shard = 0;
  uint32_t next_stream = 0;

  RandomKey take() { return {seed, step, shard, next_stream++}; }
};
RandomState& random_state();

// Sets this thread's seed and returns to step 0, stream 0.
void manual_seed(uint64_t seed);
// Enters a training step: draws from here on depend on (seed, step, shard) alone.
void begin_random_step(uint64_t step, uint32_t shard = 0);

}  // namespace weft
