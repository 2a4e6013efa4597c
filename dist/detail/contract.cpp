#include "dist/detail/contract.h"

#include "dist/recorder.h"

#include <algorithm>
#include <cstring>

namespace weft::dist::detail {
namespace {

bool reduces(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce_scatter ||
         collective == Collective::reduce;
}

bool has_root(Collective collective) {
  switch (collective) {
    case Collective::broadcast:
    case Collective::reduce:
    case Collective::gather:
    case Collective::scatter:
    case Collective::send:
    case Collective::recv:
      return true;
    default:
      return false;
  }
}

void check_elements(const Elements& values, const char* op) {
  WEFT_CHECK(values.count >= 0, op, "expected a count of at least 0, got ", values.count);
  WEFT_CHECK(values.count == 0 || values.data, op, "expected memory for ", values.count,
             " elements, got none");
  WEFT_CHECK(values.dtype != boolean, op, "expected f32, f64, bf16, f16, i64, i32 or u8, got bool");
}

bool apart(const Elements& a, const Elements& b) {
  return a.count == 0 || b.count == 0 || a.data + a.bytes() <= b.data ||
         b.data + b.bytes() <= a.data;
}

// One side of a call is `size` pieces of what the other has. The piece may lie in its own place,
// and nowhere else in the whole, where others read or write.
void check_pieces(const Elements& whole, const Elements& piece, const char* name, int rank,
                  int size, const char* op) {
  WEFT_CHECK(whole.dtype == piece.dtype, op, "expected in and out of one dtype, got ", whole.dtype,
             " and ", piece.dtype);
  WEFT_CHECK(piece.count <= INT64_MAX / size && whole.count == piece.count * size, op, "expected ",
             name, " ", size * piece.count, " elements (", size, " ranks × ", piece.count,
             "), got ", whole.count);
  WEFT_CHECK(apart(whole, piece) || piece.data == whole.part(rank * piece.count, 0).data, op,
             "expected in and out apart in memory, or one to be piece ", rank,
             " of the other, got overlapping ones");
}

void check_nodes(const Call& call, int size, const char* op) {
  const bool scatters = call.collective == Collective::reduce_scatter;
  WEFT_CHECK(scatters || call.collective == Collective::all_reduce, op,
             "expected all_reduce or reduce_scatter for a sum of nodes, got ", op);
  WEFT_CHECK(call.op != ReduceOp::mean, op, "expected sum, max, min or product of nodes, got mean");
  WEFT_CHECK(scatters || call.pending.empty(), op, "expected no pending nodes, got ",
             call.pending.size());
  const int64_t count = count_of(call);
  for (const Part& part : call.parts) {
    check_elements(part.values, op);
    const int64_t expected = scatters ? count * size : count;
    WEFT_CHECK(part.values.count == expected, op, "expected parts of ", expected,
               " elements, got one of ", part.values.count);
    WEFT_CHECK(part.values.dtype == call.parts[0].values.dtype, op,
               "expected parts of one dtype, got ", call.parts[0].values.dtype, " and ",
               part.values.dtype);
  }
  for (const auto* parts : {&call.pending, &call.results}) {
    for (const Part& part : *parts) {
      check_elements(part.values, op);
      WEFT_CHECK(part.values.count == count, op, "expected pending nodes and results of ", count,
                 " elements, got one of ", part.values.count);
      WEFT_CHECK(call.results.empty() || parts == &call.pending ||
                     part.values.dtype == call.results[0].values.dtype,
                 op, "expected results of one dtype, got ", call.results[0].values.dtype, " and ",
                 part.values.dtype);
    }
  }
}

}  // namespace

int64_t count_of(const Call& call) {
  if (call.leaves > 0) {
    if (!call.results.empty()) return call.results[0].values.count;
    if (!call.pending.empty()) return call.pending[0].values.count;
    return call.parts.empty() ? 0 : call.parts[0].values.count;
  }
  switch (call.collective) {
    case Collective::reduce_scatter:
    case Collective::scatter:
    case Collective::recv:
      return call.out.count;
    default:
      return call.in.count;
  }
}

DType dtype_of_call(const Call& call) {
  if (call.leaves > 0) {
    if (!call.parts.empty()) return call.parts[0].values.dtype;
    if (call.parts_dtype) return *call.parts_dtype;
    return call.results.empty() ? f32 : call.results[0].values.dtype;
  }
  return call.collective == Collective::recv || call.collective == Collective::scatter
             ? call.out.dtype
             : call.in.dtype;
}

Contract contract_of(const Call& call) {
  Contract contract;
  contract.collective = static_cast<uint8_t>(call.collective);
  contract.op = reduces(call.collective) ? static_cast<uint8_t>(call.op) : 0;
  contract.dtype = static_cast<uint8_t>(dtype_of_call(call));
  if (call.leaves > 0) {
    if (call.parts.empty() && call.results.empty() && !call.parts_dtype)
      contract.dtype = Contract::kAny;
    if (!call.results.empty())
      contract.result_dtype = static_cast<uint8_t>(call.results[0].values.dtype);
    contract.leaves = call.leaves;
    contract.results = static_cast<int32_t>(call.results.size());
  }
  contract.root = has_root(call.collective) ? call.root : -1;
  contract.count = count_of(call);
  contract.begin = call.tag.begin;
  contract.end = call.tag.end;
  const size_t length = std::min(call.tag.unit.size(), Tag::kLength);
  if (length > 0) std::memcpy(contract.unit.data(), call.tag.unit.data(), length);
  return contract;
}

bool agree(const Contract& a, const Contract& b) {
  const auto same = [](uint8_t x, uint8_t y) {
    return x == y || x == Contract::kAny || y == Contract::kAny;
  };
  const auto send = static_cast<uint8_t>(Collective::send);
  const auto recv = static_cast<uint8_t>(Collective::recv);
  const bool pair = (a.collective == send && b.collective == recv) ||
                    (a.collective == recv && b.collective == send);
  return (pair || (a.collective == b.collective && a.root == b.root)) && a.op == b.op &&
         same(a.dtype, b.dtype) && same(a.result_dtype, b.result_dtype) && a.count == b.count &&
         a.leaves == b.leaves && a.results == b.results && a.begin == b.begin && a.end == b.end &&
         a.unit == b.unit;
}

std::string describe(const Contract& contract, int64_t sequence, const std::string& communicator) {
  Event event;
  event.collective = static_cast<Collective>(contract.collective);
  event.op = static_cast<ReduceOp>(contract.op);
  event.dtype =
      static_cast<DType>(contract.dtype == Contract::kAny ? contract.result_dtype : contract.dtype);
  event.sequence = sequence;
  event.count = contract.count;
  event.communicator = communicator;
  event.unit = contract.unit.data();
  event.begin = contract.begin;
  event.tag_end = contract.end;
  std::string text;
  if (contract.dtype == Contract::kAny && contract.result_dtype == Contract::kAny) {
    event.dtype = f32;
  }
  text = dist::describe(event);
  if (contract.root >= 0) {
    const auto collective = event.collective;
    text += concat({collective == Collective::send   ? ", to rank "
                    : collective == Collective::recv ? ", from rank "
                                                     : ", root ",
                    contract.root});
  }
  if (contract.leaves > 0)
    text += concat({", tree of ", contract.leaves, " leaves, results ", contract.results});
  return text;
}

int64_t sent_bytes_of(const Call& call, int rank, int size) {
  if (size == 1) return 0;
  const int64_t bytes = count_of(call) * size_of(dtype_of_call(call));
  const int64_t others = size - 1;
  switch (call.collective) {
    case Collective::all_reduce: {
      if (call.leaves == 0) return 2 * bytes * others / size;
      int64_t sum = 0;
      for (const auto* parts : {&call.parts, &call.results}) {
        for (const Part& part : *parts)
          sum += part.values.bytes();
      }
      return sum * others / size;
    }
    case Collective::reduce_scatter: {
      if (call.leaves == 0) return bytes * others;
      int64_t sum = 0;
      for (const Part& part : call.parts)
        sum += part.values.bytes();
      return sum * others / size;
    }
    case Collective::all_gather:
      return bytes * others;
    case Collective::all_to_all:
      return bytes * others / size;
    case Collective::broadcast:
      return rank == call.root ? bytes : 0;
    case Collective::scatter:
      return rank == call.root ? bytes * others : 0;
    case Collective::reduce:
    case Collective::gather:
      return rank == call.root ? 0 : bytes;
    case Collective::send:
      return bytes;
    case Collective::recv:
    case Collective::barrier:
    case Collective::split:
      return 0;
  }
  return 0;
}

void check_call(const Call& call, int rank, int size) {
  const char* op = name_of(call.collective);
  if (has_root(call.collective)) {
    const bool pair = call.collective == Collective::send || call.collective == Collective::recv;
    WEFT_CHECK(call.root >= 0 && call.root < size && (!pair || call.root != rank), op, "expected ",
               pair ? "another rank" : "a root", " out of ", size, ", got ", call.root);
  }
  if (call.leaves != 0 || !call.parts.empty() || !call.results.empty() || !call.pending.empty()) {
    WEFT_CHECK(call.leaves >= 1 && call.leaves <= INT32_MAX, op,
               "expected a tree of 1 to 2^31 - 1 leaves, got ", call.leaves);
    return check_nodes(call, size, op);
  }
  const bool on_root = rank == call.root;
  const bool sees_in =
      call.collective != Collective::recv && (call.collective != Collective::scatter || on_root);
  const bool sees_out =
      call.collective != Collective::send && (call.collective != Collective::gather || on_root);
  if (sees_in) check_elements(call.in, op);
  if (sees_out) check_elements(call.out, op);
  if (reduces(call.collective) && call.op == ReduceOp::mean)
    WEFT_CHECK(is_floating(call.in.dtype), op, "expected a floating dtype for a mean, got ",
               call.in.dtype);
  switch (call.collective) {
    case Collective::reduce_scatter:
      check_pieces(call.in, call.out, "in of", rank, size, op);
      break;
    case Collective::scatter:
      if (on_root) check_pieces(call.in, call.out, "in of", rank, size, op);
      break;
    case Collective::split:
    case Collective::all_gather:
      check_pieces(call.out, call.in, "out of", rank, size, op);
      break;
    case Collective::gather:
      if (on_root) check_pieces(call.out, call.in, "out of", rank, size, op);
      break;
    case Collective::all_to_all:
      WEFT_CHECK(call.in.dtype == call.out.dtype && call.in.count == call.out.count, op,
                 "expected in and out alike, got ", call.in.count, " x ", call.in.dtype, " and ",
                 call.out.count, " x ", call.out.dtype);
      WEFT_CHECK(call.in.count % size == 0, op, "expected a piece of equal size for each of ", size,
                 " ranks, got ", call.in.count, " elements");
      WEFT_CHECK(apart(call.in, call.out), op,
                 "expected in and out apart in memory, got overlapping ones");
      break;
    default:
      break;
  }
}

}  // namespace weft::dist::detail
