/* MPI_Allreduce in C, sampled as allreduce.sweep samples it: what spbench is compared with.
 *
 *     mpirun --bind-to core -n 2 allreduce ITERATIONS BYTES...
 *
 * The sum of floats, out of place. A sample is as many calls as take SAMPLE_SECONDS on the slowest
 * rank. Prints "BYTES US" for each size: the median over ITERATIONS samples of the slowest rank.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define SAMPLE_SECONDS 100e-6
#define MAX_CALLS 10000
#define WARM_UP 5

static float *source, *result;

static int rising(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double timed(int count, int calls) {
    double start = MPI_Wtime();
    for (int call = 0; call < calls; call++)
        MPI_Allreduce(source, result, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    return (MPI_Wtime() - start) / calls;
}

static int calls_for(double seconds) {
    double slowest, calls;
    MPI_Allreduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    calls = SAMPLE_SECONDS / (slowest > 1e-9 ? slowest : 1e-9) + 0.5;
    return calls < 1 ? 1 : calls > MAX_CALLS ? MAX_CALLS : (int)calls;
}

/* Median seconds of one call, each sample as long as its slowest rank's. */
static double measure(int count, int iterations) {
    double *mine = malloc(sizeof(double) * iterations);
    double *slowest = malloc(sizeof(double) * iterations);
    double seconds = 0, median;
    int calls = calls_for(timed(count, 1));
    for (int index = 0; index < WARM_UP; index++) seconds += timed(count, calls) / WARM_UP;
    calls = calls_for(seconds);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int index = 0; index < iterations; index++) mine[index] = timed(count, calls);
    MPI_Allreduce(mine, slowest, iterations, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    qsort(slowest, iterations, sizeof(double), rising);
    median = (slowest[(iterations - 1) / 2] + slowest[iterations / 2]) / 2;
    free(mine);
    free(slowest);
    return median;
}

int main(int argc, char **argv) {
    int rank, largest = 4;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc < 3 || atoi(argv[1]) < 1) {
        if (rank == 0) fprintf(stderr, "allreduce ITERATIONS BYTES...\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    for (int word = 2; word < argc; word++)
        if (atoi(argv[word]) > largest) largest = atoi(argv[word]);
    source = malloc(largest);
    result = malloc(largest);
    for (int index = 0; index < largest / 4; index++) source[index] = 1, result[index] = 0;
    for (int word = 2; word < argc; word++) {
        int bytes = atoi(argv[word]);
        double seconds = measure(bytes / 4, atoi(argv[1]));
        if (rank == 0) printf("%d %.4f\n", bytes, seconds * 1e6);
    }
    free(source);
    free(result);
    MPI_Finalize();
    return 0;
}
