"""One rank of a job that runs a program: ``python -m spbench_workers.program``.

It starts no MPI, so that the program can: its child gets the environment of the launcher.
"""

import signal

if __name__ == "__main__":
    # mpirun_rsh starts ranks with blocked signals, including SIGTERM, which children inherit.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    from spbench_workers.benchmarks.program.serve import serve

    serve()
