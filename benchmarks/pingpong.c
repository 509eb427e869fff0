/* Times a ping-pong of two ranks with the sampling of link.pingpong, as a reference for spbench.
 *
 *     mpirun --bind-to core -n 2 pingpong plain|persistent ITERATIONS BYTES...
 *
 * plain calls MPI_Send and MPI_Recv, persistent starts and waits for persistent requests. A sample
 * has the number of round trips that take SAMPLE_SECONDS. Prints "BYTES ONE_WAY_US" for each size:
 * the median over ITERATIONS samples.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLE_SECONDS 100e-6
#define MAX_TRIPS 10000
#define WARM_UP 5
#define TAG 77

static char *outgoing, *incoming;
static MPI_Request sending, receiving;

static void exchange_plain(int rank, int bytes, int trips) {
    for (int trip = 0; trip < trips; trip++) {
        if (rank == 0) {
            MPI_Send(outgoing, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
            MPI_Recv(incoming, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(incoming, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(outgoing, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
        }
    }
}

static void exchange_persistent(int rank, int bytes, int trips) {
    (void)bytes;
    if (rank == 0) {
        for (int trip = 0; trip < trips; trip++) {
            MPI_Start(&sending);
            MPI_Start(&receiving);
            MPI_Wait(&sending, MPI_STATUS_IGNORE);
            MPI_Wait(&receiving, MPI_STATUS_IGNORE);
        }
        return;
    }
    MPI_Start(&receiving);
    for (int trip = 0; trip < trips; trip++) {
        MPI_Wait(&receiving, MPI_STATUS_IGNORE);
        MPI_Start(&sending);
        if (trip < trips - 1) MPI_Start(&receiving);
        MPI_Wait(&sending, MPI_STATUS_IGNORE);
    }
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double time_trips(void (*body)(int, int, int), int rank, int bytes, int trips) {
    double start = MPI_Wtime();
    body(rank, bytes, trips);
    return (MPI_Wtime() - start) / trips;
}

static int choose_trips(double seconds) {
    double trips = SAMPLE_SECONDS / (seconds > 1e-9 ? seconds : 1e-9) + 0.5;
    int count = trips < 1 ? 1 : trips > MAX_TRIPS ? MAX_TRIPS : (int)trips;
    MPI_Bcast(&count, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return count;
}

/* Return the median seconds of a round trip. */
static double measure(void (*body)(int, int, int), int rank, int bytes, int iterations) {
    double *times = malloc(sizeof(double) * iterations), seconds = 0, median;
    int trips = choose_trips(time_trips(body, rank, bytes, 1));
    for (int index = 0; index < WARM_UP; index++)
        seconds += time_trips(body, rank, bytes, trips) / WARM_UP;
    trips = choose_trips(seconds);
    for (int index = 0; index < iterations; index++)
        times[index] = time_trips(body, rank, bytes, trips);
    qsort(times, iterations, sizeof(double), compare_doubles);
    median = (times[(iterations - 1) / 2] + times[iterations / 2]) / 2;
    free(times);
    return median;
}

int main(int argc, char **argv) {
    int rank, size, largest = 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc < 4 || size != 2 || atoi(argv[2]) < 1) {
        if (rank == 0) fprintf(stderr, "two ranks: pingpong plain|persistent ITERATIONS BYTES...\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    for (int index = 3; index < argc; index++)
        if (atoi(argv[index]) > largest) largest = atoi(argv[index]);
    MPI_Alloc_mem(largest, MPI_INFO_NULL, &outgoing);
    MPI_Alloc_mem(largest, MPI_INFO_NULL, &incoming);
    memset(outgoing, 1, largest);
    memset(incoming, 2, largest);
    for (int index = 3; index < argc; index++) {
        int bytes = atoi(argv[index]), peer = 1 - rank;
        double seconds;
        MPI_Send_init(outgoing, bytes, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &sending);
        MPI_Recv_init(incoming, bytes, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &receiving);
        seconds = measure(strcmp(argv[1], "plain") ? exchange_persistent : exchange_plain, rank,
                          bytes, atoi(argv[2]));
        MPI_Request_free(&sending);
        MPI_Request_free(&receiving);
        if (rank == 0) printf("%d %.4f\n", bytes, seconds / 2 * 1e6);
    }
    MPI_Free_mem(outgoing);
    MPI_Free_mem(incoming);
    MPI_Finalize();
    return 0;
}
