"""The ranks of spbench: what runs on the compute nodes, under any MPI launcher."""
