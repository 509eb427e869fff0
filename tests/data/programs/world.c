/* An MPI program whose ranks find each other: rank 0 says how many there are. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    int rank, size, sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (argc > 1 && !strcmp(argv[1], "dies") && rank == 1)
        exit(3); /* the others wait for it in MPI_Finalize */
    if (argc > 1 && !strcmp(argv[1], "aborts") && rank == 1)
        MPI_Abort(MPI_COMM_WORLD, 7);
    if (rank == 0)
        printf("ranks %d sum %d\nDONE\n", size, sum);
    if (argc > 1 && !strcmp(argv[1], "dies"))
        MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
