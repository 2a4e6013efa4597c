#include "core/random.h"

#include "core/error.h"
#include "core/parallel.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

namespace weft {
namespace {

// Salmon et al., table 2 and §3.3.
constexpr uint32_t kMultiplier0 = 0xD2511F53;
constexpr uint32_t kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9;
constexpr uint32_t kWeyl1 = 0xBB67AE85;

// Values come in chunks at fixed places of the sequence, each computed by the same loops whichever
// part of it is asked for: what a value is cannot depend on where a fill begins. The loops have no
// branches and call no library, so that the compiler turns them into vector code.
constexpr int64_t kBlocks = 32;
constexpr int64_t kWords = 4 * kBlocks;
constexpr int64_t kGrain = int64_t{1} << 14;  // values a thread takes at least

// One round of the generator, the key as it stands in that round.
inline void philox_round(uint32_t& c0, uint32_t& c1, uint32_t& c2, uint32_t& c3, uint32_t k0,
                         uint32_t k1) {
  const uint64_t p0 = uint64_t{kMultiplier0} * c0;
  const uint64_t p1 = uint64_t{kMultiplier1} * c2;
  c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
  c1 = static_cast<uint32_t>(p1);
  c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
  c3 = static_cast<uint32_t>(p0);
}

template <size_t... Round>
inline void philox_rounds(uint32_t& c0, uint32_t& c1, uint32_t& c2, uint32_t& c3, uint32_t k0,
                          uint32_t k1, std::index_sequence<Round...>) {
  (philox_round(c0, c1, c2, c3, k0 + static_cast<uint32_t>(Round) * kWeyl0,
                k1 + static_cast<uint32_t>(Round) * kWeyl1),
   ...);
}

using Rounds = std::make_index_sequence<10>;

// A key with its (seed, step, shard, stream) already put through the generator.
struct Sequence {
  std::array<uint32_t, 2> key;
  std::array<uint32_t, 2> high;  // upper half of the counter

  explicit Sequence(const RandomKey& k) {
    const std::array<uint32_t, 4> mixed = philox4x32(
        {static_cast<uint32_t>(k.step), static_cast<uint32_t>(k.step >> 32), k.shard, k.stream},
        {static_cast<uint32_t>(k.seed), static_cast<uint32_t>(k.seed >> 32)});
    key = {mixed[0], mixed[1]};
    high = {mixed[2], mixed[3]};
  }
};

// The words of kBlocks blocks from `block` on.
void chunk_words(const Sequence& sequence, uint64_t block, uint32_t* words) {
  uint32_t c0[kBlocks];
  uint32_t c1[kBlocks];
  uint32_t c2[kBlocks];
  uint32_t c3[kBlocks];
  const auto [k0, k1] = sequence.key;
  const auto [high0, high1] = sequence.high;
  // A chunk's blocks differ in the low bits only: kBlocks divides 2^32.
  const auto low = static_cast<uint32_t>(block);
  const auto middle = static_cast<uint32_t>(block >> 32);
  for (uint32_t i = 0; i < kBlocks; ++i) {
    uint32_t w0 = low + i;
    uint32_t w1 = middle;
    uint32_t w2 = high0;
    uint32_t w3 = high1;
    philox_rounds(w0, w1, w2, w3, k0, k1, Rounds{});
    c0[i] = w0;
    c1[i] = w1;
    c2[i] = w2;
    c3[i] = w3;
  }
  for (int64_t i = 0; i < kBlocks; ++i) {
    words[4 * i] = c0[i];
    words[4 * i + 1] = c1[i];
    words[4 * i + 2] = c2[i];
    words[4 * i + 3] = c3[i];
  }
}

float uniform_of(uint32_t word) {
  return static_cast<float>(static_cast<int32_t>(word >> 8)) * 0x1p-24f;
}

uint64_t joined(const uint32_t* words) {
  return uint64_t{words[1]} << 32 | words[0];
}

// ln(x) for normal x in (0, 1]: x = m 2^e with m in [√½, √2), then the polynomial of Cephes' logf
// (Moshier, 1992).
inline float log_of(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const auto shifted = static_cast<int32_t>(bits - 0x3f3504f3u);  // from √½ up
  const int32_t exponent = shifted >> 23;
  const float m = std::bit_cast<float>(bits - (static_cast<uint32_t>(exponent) << 23)) - 1.0f;
  float p = 7.0376836292e-2f;
  p = p * m - 1.1514610310e-1f;
  p = p * m + 1.1676998740e-1f;
  p = p * m - 1.2420140846e-1f;
  p = p * m + 1.4249322787e-1f;
  p = p * m - 1.6668057665e-1f;
  p = p * m + 2.0000714765e-1f;
  p = p * m - 2.4999993993e-1f;
  p = p * m + 3.3333331174e-1f;
  const float e = static_cast<float>(exponent);
  const float square = m * m;
  const float tail = m * square * p - 2.12194440e-4f * e - 0.5f * square;
  return m + tail + 0.693359375f * e;  // ln 2 in two parts
}

// One Box–Muller pair: a radius from the first word, an angle in 2^-32 turns from the second.
inline void normal_pair(uint32_t first, uint32_t second, float& cosine, float& sine) {
  // In (0, 1]; the conversion keeps small words exact, so the tail reaches 6.8 standard deviations.
  const float u = static_cast<float>(static_cast<int32_t>(first >> 1)) * 0x1p-31f + 0x1p-33f;
  const float radius = std::sqrt(-2.0f * log_of(u));
  const uint32_t quarter = (second + 0x20000000u) >> 30;
  const auto rest = static_cast<int32_t>(second - (quarter << 30));   // within an eighth of a turn
  const float x = static_cast<float>(rest) * 1.4629180792671596e-9f;  // 2π / 2^32
  const float z = x * x;
  // Cephes' sinf and cosf on [-π/4, π/4].
  const float s = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * x + x;
  const float c =
      ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z -
      0.5f * z + 1.0f;
  const uint32_t swap = 0u - (quarter & 1u);  // all ones in odd quarters
  const uint32_t sb = std::bit_cast<uint32_t>(s);
  const uint32_t cb = std::bit_cast<uint32_t>(c);
  const uint32_t cosine_sign = ((quarter + 1) & 2u) << 30;
  const uint32_t sine_sign = (quarter & 2u) << 30;
  cosine = radius * std::bit_cast<float>(((cb & ~swap) | (sb & swap)) ^ cosine_sign);
  sine = radius * std::bit_cast<float>(((sb & ~swap) | (cb & swap)) ^ sine_sign);
}

struct Uniform {
  static void of(const uint32_t* words, float* out) {
    for (int64_t i = 0; i < kWords; ++i)
      out[i] = uniform_of(words[i]);
  }
  static void of(const uint32_t* words, double* out) {
    for (int64_t i = 0; i < kWords / 2; ++i)
      out[i] = static_cast<double>(joined(words + 2 * i) >> 11) * 0x1p-53;
  }
};

struct Normal {
  static void of(const uint32_t* words, float* out) {
    float cosines[kWords / 2];
    float sines[kWords / 2];
    for (int64_t i = 0; i < kWords / 2; ++i)
      normal_pair(words[2 * i], words[2 * i + 1], cosines[i], sines[i]);
    for (int64_t i = 0; i < kWords / 2; ++i) {
      out[2 * i] = cosines[i];
      out[2 * i + 1] = sines[i];
    }
  }
  static void of(const uint32_t* words, double* out) {
    constexpr double turn = 6.283185307179586477;
    for (int64_t i = 0; i < kBlocks; ++i) {
      const double u =
          static_cast<double>((joined(words + 4 * i) >> 11) + 1) * 0x1p-53;  // in (0, 1]
      const double angle = static_cast<double>(joined(words + 4 * i + 2) >> 11) * 0x1p-53 * turn;
      const double radius = std::sqrt(-2.0 * std::log(u));
      out[2 * i] = radius * std::cos(angle);
      out[2 * i + 1] = radius * std::sin(angle);
    }
  }
};

template <class Kind, class T>
void fill(const RandomKey& key, uint64_t first, T* out, int64_t count) {
  constexpr int64_t per_chunk = kWords * 4 / static_cast<int64_t>(sizeof(T));
  const Sequence sequence(key);
  parallel_for(0, count, kGrain, [&](int64_t begin, int64_t end) {
    uint32_t words[kWords];
    T values[per_chunk];
    while (begin < end) {
      const uint64_t index = first + static_cast<uint64_t>(begin);
      const auto skipped = static_cast<int64_t>(index % per_chunk);
      const int64_t taken = std::min(per_chunk - skipped, end - begin);
      chunk_words(sequence, index / per_chunk * kBlocks, words);
      Kind::of(words, values);
      std::memcpy(out + begin, values + skipped, static_cast<size_t>(taken) * sizeof(T));
      begin += taken;
    }
  });
}

}  // namespace

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  philox_rounds(counter[0], counter[1], counter[2], counter[3], key[0], key[1], Rounds{});
  return counter;
}

std::array<uint32_t, 4> philox(const RandomKey& key, uint64_t block) {
  const Sequence sequence(key);
  return philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                     sequence.high[0], sequence.high[1]},
                    sequence.key);
}

uint32_t random_bits(const RandomKey& key, uint64_t index) {
  return philox(key, index / 4)[index % 4];
}

float random_uniform(const RandomKey& key, uint64_t index) {
  return uniform_of(random_bits(key, index));
}

uint64_t random_below(const RandomKey& key, uint64_t index, uint64_t bound) {
  WEFT_CHECK(bound > 0, "random_below", "expected a bound of 1 or more, got 0");
  const std::array<uint32_t, 4> words = philox(key, index / 2);
  __extension__ using Wide = unsigned __int128;  // Lemire's multiplication: no division
  return static_cast<uint64_t>(Wide{joined(&words[2 * (index % 2)])} * bound >> 64);
}

void fill_uniform(const RandomKey& key, uint64_t first, float* out, int64_t count) {
  fill<Uniform>(key, first, out, count);
}
void fill_uniform(const RandomKey& key, uint64_t first, double* out, int64_t count) {
  fill<Uniform>(key, first, out, count);
}
void fill_normal(const RandomKey& key, uint64_t first, float* out, int64_t count) {
  fill<Normal>(key, first, out, count);
}
void fill_normal(const RandomKey& key, uint64_t first, double* out, int64_t count) {
  fill<Normal>(key, first, out, count);
}

RandomState& random_state() {
  static thread_local RandomState state;
  return state;
}

void manual_seed(uint64_t seed) {
  random_state() = {.seed = seed, .step = 0, .shard = 0, .next_stream = 0};
}

void begin_random_step(uint64_t step, uint32_t shard) {
  RandomState& state = random_state();
  state.step = step;
  state.shard = shard;
  state.next_stream = 0;
}

}  // namespace weft
