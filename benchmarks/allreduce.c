/* Times MPI_Allreduce with the sampling of allreduce.sweep, as a reference for spbench.
 *
 *     mpirun --bind-to core -n 2 allreduce ITERATIONS BYTES...
 *
 * The operation is a sum of floats, out of place. A sample has the number of calls that take
 * SAMPLE_SECONDS on the slowest rank. Prints "BYTES US" for each size: the median over ITERATIONS
 * samples of the slowest rank.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define SAMPLE_SECONDS 100e-6
#define MAX_CALLS 10000
#define WARM_UP 5

static float *source, *result;

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double time_calls(int count, int calls) {
    double start = MPI_Wtime();
    for (int call = 0; call < calls; call++)
        MPI_Allreduce(source, result, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    return (MPI_Wtime() - start) / calls;
}

static int choose_calls(double seconds) {
    double slowest, calls;
    MPI_Allreduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    calls = SAMPLE_SECONDS / (slowest > 1e-9 ? slowest : 1e-9) + 0.5;
    return calls < 1 ? 1 : calls > MAX_CALLS ? MAX_CALLS : (int)calls;
}

/* Return the median seconds of a call; each sample is that of its slowest rank. */
static double measure(int count, int iterations) {
    double *local_times = malloc(sizeof(double) * iterations);
    double *slowest = malloc(sizeof(double) * iterations);
    double seconds = 0, median;
    int calls = choose_calls(time_calls(count, 1));
    for (int index = 0; index < WARM_UP; index++) seconds += time_calls(count, calls) / WARM_UP;
    calls = choose_calls(seconds);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int index = 0; index < iterations; index++) local_times[index] = time_calls(count, calls);
    MPI_Allreduce(local_times, slowest, iterations, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    qsort(slowest, iterations, sizeof(double), compare_doubles);
    median = (slowest[(iterations - 1) / 2] + slowest[iterations / 2]) / 2;
    free(local_times);
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
    for (int index = 2; index < argc; index++)
        if (atoi(argv[index]) > largest) largest = atoi(argv[index]);
    source = malloc(largest);
    result = malloc(largest);
    for (int index = 0; index < largest / 4; index++) source[index] = 1, result[index] = 0;
    for (int index = 2; index < argc; index++) {
        int bytes = atoi(argv[index]);
        double seconds = measure(bytes / 4, atoi(argv[1]));
        if (rank == 0) printf("%d %.4f\n", bytes, seconds * 1e6);
    }
    free(source);
    free(result);
    MPI_Finalize();
    return 0;
}
