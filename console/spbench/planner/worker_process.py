"""Planning in a separate process, so that it can be cancelled and does not block.

The process reads a pickled request from its standard input. It writes a pickled answer to its
standard output: the plan, or the message of an error.
"""

from __future__ import annotations

import asyncio
import pickle
import sys

from spbench.errors import SpbenchError
from spbench.launch.reaping import kill_and_wait
from spbench.planner.errors import PlannerError
from spbench.planner.request import PlanDetails, PlanRequest, compute_plan

_MODULE = "spbench.planner.worker_process"


async def plan_in_process(request: PlanRequest) -> PlanDetails:
    """Return the requested plan; cancelling the call kills its process.

    Raises:
        PlannerError: There is no plan, or the process failed.
    """
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", _MODULE), stdin=pipe, stdout=pipe, stderr=pipe
        )
    except OSError as error:
        reason = error.strerror or error
        raise PlannerError(f"cannot start {sys.executable} to plan: {reason}") from None
    try:
        answer, log = await process.communicate(pickle.dumps(request))
    finally:
        await kill_and_wait(process)
    if process.returncode:
        last_line = log.decode(errors="replace").strip().rpartition("\n")[2]
        raise PlannerError(f"planning ended with exit code {process.returncode}: {last_line}")
    details = pickle.loads(answer)  # safe, since it comes from the process started above
    if isinstance(details, PlanDetails):
        return details
    raise PlannerError(str(details))


def _compute_answer(request: PlanRequest) -> PlanDetails | str:
    try:
        return compute_plan(request)
    except SpbenchError as error:
        return str(error)


if __name__ == "__main__":
    sys.stdout.buffer.write(pickle.dumps(_compute_answer(pickle.load(sys.stdin.buffer))))
