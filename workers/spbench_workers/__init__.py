"""The ranks of spbench, which run on the compute nodes under any MPI launcher."""
