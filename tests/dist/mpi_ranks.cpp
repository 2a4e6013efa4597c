// What a rank of the mpi backend does in the tests that mpirun starts: mpi_ranks WHAT. Exit code 0
// if all was as it should be on this rank.
#include "core/parallel.h"
#include "dist/mpi.h"
#include "dist/thread_ranks.h"
#include "dist/world.h"
#include "tests/support/collective_checks.h"

#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

namespace weft::dist {
namespace {

void expect(bool condition, const std::string& text) {
  if (!condition) throw Error("expected something else, got: " + text);
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const CommunicationError& error) {
    return error.what();
  }
  return "no error";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void collectives(Communicator& comm) {
  test::check_all_collectives(comm);
  test::check_collectives(comm, f32, 2'000'001 / comm.size(), false);
  for (const int64_t leaves : {1, 2, 3, 5, 8, 13})
    test::check_node_sums(comm, leaves, 50);
  test::check_node_sums(comm, 5, 600'001 / comm.size());
  test::check_started(comm);
  test::check_split(comm);
  uint64_t expected = 0;
  run_thread_ranks(comm.size(), [&](Communicator& threads) {
    const uint64_t digest = test::digest_of_sums(threads);
    if (threads.rank() == 0) expected = digest;
  });
  expect(test::digest_of_sums(comm) == expected, "other bits than thread ranks have");
}

void contract(Communicator& comm) {
  std::vector<float> values(100'000, 3.0f);
  const std::string text = error_of([&] {
    comm.all_reduce({values.data(), comm.rank() == 2 ? 99'999 : 100'000, f32});
  });
  expect(contains(text, "on rank 2: all_reduce #0 of 'world', 99999 x f32, sum"), text);
  expect(values == std::vector<float>(100'000, 3.0f), "data that were touched");
}

void late(Communicator& comm) {
  float one = 1;
  comm.barrier();
  if (comm.rank() == 1) sleep(3);
  const std::string text = error_of([&] {
    comm.all_reduce({&one, 1, f32}, ReduceOp::sum, {"loss"});
  });
  expect(contains(text, "unit 'loss'") && contains(text, "got no rank 1: it did not come within"),
         text);
}

void one_throws(Communicator& comm) {
  float one = 1;
  // Rank 1 may be through with the barrier before the others are.
  const std::string text = error_of([&] {
    comm.barrier();
    if (comm.rank() == 1) comm.abort("bad sample");
    comm.all_reduce({&one, 1, f32});
  });
  expect(contains(text, "got no rank 1: it gave up after barrier #0 of 'world': bad sample"), text);
}

}  // namespace
}  // namespace weft::dist

int main(int count, char** arguments) {
  using namespace weft;
  const std::string what = count > 1 ? arguments[1] : "";
  try {
    set_num_threads(1);
    const auto comm = dist::join_world(
        dist::read_environment(),
        {.backend = "mpi", .communicator = {.timeout_seconds = what == "late" ? 1.0 : 60.0}});
    if (what == "collectives") {
      dist::collectives(*comm);
    } else if (what == "contract") {
      dist::contract(*comm);
    } else if (what == "late") {
      dist::late(*comm);
    } else if (what == "throw") {
      dist::one_throws(*comm);
    } else {
      throw Error("expected collectives, contract, late or throw, got '" + what + "'");
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mpi_ranks: %s\n", error.what());
    return 1;
  }
}
