// What ranks compare before a collective touches any data.
#pragma once

#include "dist/communicator.h"

#include <array>
#include <cstdint>
#include <string>

namespace weft::dist::detail {

// A plain value that travels between ranks as it lies in memory. Fields that a collective does not
// use are 0 on every rank.
struct Contract {
  static constexpr uint8_t kAny = 255;  // a dtype: this rank has nothing of that kind

  uint8_t collective = 0;
  uint8_t op = 0;
  uint8_t dtype = 0;
  uint8_t result_dtype = kAny;  // of the results of node sums
  int32_t root = 0;             // -1 where there is none
  int64_t count = 0;            // elements a rank contributes to each piece: see count_of
  int64_t leaves = 0;           // of node sums; 0 otherwise
  int32_t results = 0;
  int32_t unused = 0;
  int64_t begin = 0;
  int64_t end = 0;
  std::array<char, Tag::kLength + 1> unit{};
};
static_assert(sizeof(Contract) == 96);

Contract contract_of(const Call& call);

// Whether the two may take part in one collective. For send with recv: each names the other.
bool agree(const Contract& a, const Contract& b);

// "all_reduce #42 of 'world', 1024 x f32, sum, unit 'blocks.3' [0, 1024)"
std::string describe(const Contract& contract, int64_t sequence, const std::string& communicator);

// Elements of the piece that a rank ends up with, or contributes: `values` of in-place collectives,
// the smaller of `in` and `out` otherwise.
int64_t count_of(const Call& call);
// The dtype of the data; Contract::kAny of a node sum without parts becomes that of the results.
DType dtype_of_call(const Call& call);

// Bytes that this rank must send: those that an algorithm without waste needs. All-reduce
// 2 (W-1)/W of the buffer, reduce-scatter and all-gather (W-1)/W of the whole one; for node sums
// the same for each part, and each result, instead of once.
int64_t sent_bytes_of(const Call& call, int rank, int size);

// Refuses what cannot be done, before any rank is asked: Error "[all_gather] expected …, got …".
void check_call(const Call& call, int rank, int size);

}  // namespace weft::dist::detail
