/* Sums over all ranks, long enough to be sent in pieces: prints how many were right. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { STEPS = 5, NUMBERS = 200000 };

int main(int argc, char **argv) {
    int rank, size, right = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int *mine = malloc(NUMBERS * sizeof *mine), *sum = malloc(NUMBERS * sizeof *sum);
    if (mine == NULL || sum == NULL)
        return 1;
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < NUMBERS; i++)
            mine[i] = i + step * rank;
        MPI_Allreduce(mine, sum, NUMBERS, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        int good = 1;
        for (int i = 0; i < NUMBERS; i++)
            good &= sum[i] == size * i + step * size * (size - 1) / 2;
        right += good;
    }
    if (rank == 0)
        printf("%d of %d right\n", right, STEPS);
    free(mine);
    free(sum);
    MPI_Finalize();
    return right == STEPS ? 0 : 1;
}
