"""Planning in a process of its own, so that it can be cancelled and holds nobody up.

The process reads a pickled request from its standard input, and writes to its standard output a
pickled answer: what was planned, or the error in one sentence.
"""

from __future__ import annotations

import asyncio
import pickle
import sys

from spbench.errors import SpbenchError
from spbench.launch.reaping import killed
from spbench.planner.errors import PlannerError
from spbench.planner.request import PlanDetails, PlanRequest, compute_plan

_MODULE = "spbench.planner.worker_process"


async def plan_in_process(request: PlanRequest) -> PlanDetails:
    """Return the plan that is asked for; when this is cancelled, its process is killed.

    Raises:
        PlannerError: There is no plan, or the process failed.
    """
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", _MODULE), stdin=pipe, stdout=pipe, stderr=pipe
        )
    except OSError as error:
        why = error.strerror or error
        raise PlannerError(f"cannot start {sys.executable} to plan: {why}") from None
    try:
        answer, said = await process.communicate(pickle.dumps(request))
    finally:
        await killed(process)
    if process.returncode:
        last = said.decode(errors="replace").strip().rpartition("\n")[2]
        raise PlannerError(f"planning ended with exit code {process.returncode}: {last}")
    made = pickle.loads(answer)  # of our own process
    if isinstance(made, PlanDetails):
        return made
    raise PlannerError(str(made))


def _answer(request: PlanRequest) -> PlanDetails | str:
    try:
        return compute_plan(request)
    except SpbenchError as error:
        return str(error)


if __name__ == "__main__":
    sys.stdout.buffer.write(pickle.dumps(_answer(pickle.load(sys.stdin.buffer))))
