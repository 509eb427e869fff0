"""One rank of a job that runs a program: ``python -m spbench_workers.program``.

It starts no MPI, so that the program can: what the launcher gave this process, its child has.
"""

import signal

if __name__ == "__main__":
    # mpirun_rsh starts ranks with these blocked, SIGTERM among them; their children inherit it.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    from spbench_workers.benchmarks.program.serve import serve

    serve()
