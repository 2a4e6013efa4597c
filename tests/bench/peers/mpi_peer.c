/* OpenMPI's side of `weft bench comm`: f32 collectives in place, started by mpirun.
 *   mpi_peer comm [--op all_reduce|reduce_scatter|all_gather] [--backend B] [--workers N] --bytes A,B,C [--json FILE]
 * What other flags of `weft bench comm` say is how mpirun has started it. */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static int by_value(const void* left, const void* right) {
  const double a = *(const double*)left, b = *(const double*)right;
  return (a > b) - (a < b);
}

static void collective(const char* op, float* values, long count, int ranks) {
  const int each = (int)(count / ranks);
  if (!strcmp(op, "reduce_scatter"))
    MPI_Reduce_scatter_block(MPI_IN_PLACE, values, each, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  else if (!strcmp(op, "all_gather"))
    MPI_Allgather(MPI_IN_PLACE, each, MPI_FLOAT, values, each, MPI_FLOAT, MPI_COMM_WORLD);
  else
    MPI_Allreduce(MPI_IN_PLACE, values, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static double median_seconds(const char* op, float* values, long count, int ranks, int rounds) {
  double* seconds = malloc(sizeof(double) * (size_t)rounds);
  for (int i = -3; i < rounds; ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    collective(op, values, count, ranks);
    if (i >= 0) seconds[i] = MPI_Wtime() - start;
  }
  qsort(seconds, (size_t)rounds, sizeof(double), by_value);
  const double median = seconds[rounds / 2];
  free(seconds);
  return median;
}

int main(int count, char** words) {
  MPI_Init(&count, &words);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  char* sizes = NULL;
  const char *path = NULL, *op = "all_reduce";
  for (int i = 2; i + 1 < count; ++i) {
    if (!strcmp(words[i], "--bytes")) sizes = words[i + 1];
    if (!strcmp(words[i], "--json")) path = words[i + 1];
    if (!strcmp(words[i], "--op")) op = words[i + 1];
  }
  const int all_reduces = !strcmp(op, "all_reduce");
  if (!all_reduces && strcmp(op, "reduce_scatter") && strcmp(op, "all_gather")) {
    if (rank == 0) fprintf(stderr, "mpi_peer: expected all_reduce, reduce_scatter or all_gather, got %s\n", op);
    MPI_Finalize();
    return 3;
  }
  if (!sizes) {
    if (rank == 0) fprintf(stderr, "mpi_peer: expected --bytes A,B,C, got none\n");
    MPI_Finalize();
    return 2;
  }
  FILE* out = rank == 0 && path ? fopen(path, "w") : stdout;
  if (!out) {
    fprintf(stderr, "mpi_peer: expected to write %s\n", path);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  for (char* size = strtok(sizes, ","); size; size = strtok(NULL, ",")) {
    const long bytes = atol(size);
    /* On huge pages, as Weft's buffers are. */
    const size_t huge = 2 << 20, whole = ((size_t)bytes + huge) / huge * huge;
    float* values = aligned_alloc(huge, whole);
    if (!values) MPI_Abort(MPI_COMM_WORLD, 1);
    madvise(values, whole, MADV_HUGEPAGE);
    memset(values, 0, whole);
    long rounds = 40000000 / (bytes + 1);
    rounds = rounds < 15 ? 15 : rounds > 2000 ? 2000 : rounds;
    const double seconds = median_seconds(op, values, bytes / 4, ranks, (int)rounds);
    if (rank == 0)
      fprintf(out,
              "{\"bench\":\"comm\",\"case\":\"%s_%ld\",\"threads\":1,\"workers\":%d,"
              "\"dtype\":\"f32\","
              "\"median_seconds\":%.9g,\"rate\":%.6g,\"unit\":\"GB/s bus\"}\n",
              op, bytes, ranks, seconds,
              (double)bytes / seconds / 1e9 * (all_reduces ? 2 : 1) * (ranks - 1) / ranks);
    free(values);
  }
  if (out != stdout) fclose(out);
  MPI_Finalize();
  return 0;
}
