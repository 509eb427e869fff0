"""One rank: ``python -m mpi4py -m spbench_workers [BENCHMARK --flags]``.

Without words it serves the console that launched it; with a benchmark's name it runs that one and
prints. Launch it through ``-m mpi4py``, so that an uncaught exception ends the whole job.
"""

import signal
import sys

if __name__ == "__main__":
    # mpirun_rsh starts ranks with these blocked, SIGTERM among them; their children inherit it.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    if len(sys.argv) > 1:
        from spbench_workers.standalone.program import main

        main(sys.argv[1:])
    else:
        from spbench_workers.session import serve

        serve()
