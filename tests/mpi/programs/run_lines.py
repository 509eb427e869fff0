"""Runs standalone command lines, each on the first ranks of one launch.

    mpirun -n 9 python -m mpi4py run_lines.py CASES.json RESULTS.json

A case is ``{"ranks", "arguments"}``. A result has an entry per rank: its output, and whether
a check failed.
"""

import io
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace

from spbench_workers.comm import open_world
from spbench_workers.session import load_runners
from spbench_workers.standalone.program import read_command_line, run_line
from support.rank_cases import read_cases, run_each_case


def main():
    world = open_world()
    lines = [read_command_line(case["arguments"], case["ranks"]) for case in read_cases()]
    runners = load_runners({line.entry.name for line in lines})

    def run_case(case, comm):
        case_world = replace(world, comm=comm, size=comm.size)
        line = read_command_line(case["arguments"], comm.size)
        stdout = io.StringIO()
        stderr = io.StringIO()
        with redirect_stdout(stdout), redirect_stderr(stderr):
            failed = run_line(case_world, line, runners[line.entry.name])
        return {"stdout": stdout.getvalue(), "stderr": stderr.getvalue(), "failed": failed}

    run_each_case(lambda case: case["ranks"], run_case, idle=None)


main()
