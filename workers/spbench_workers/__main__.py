"""One rank: ``python -m mpi4py -m spbench_workers [BENCHMARK --flags]``.

Without arguments it serves the console that launched it. With a benchmark's name it runs that
benchmark and prints its results. Launch it through ``-m mpi4py``, so that an uncaught exception
ends the whole job.
"""

import signal
import sys

if __name__ == "__main__":
    # mpirun_rsh starts ranks with blocked signals, including SIGTERM, which children inherit.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    if len(sys.argv) > 1:
        from spbench_workers.standalone.program import main

        main(sys.argv[1:])
    else:
        from spbench_workers.session import serve

        serve()
