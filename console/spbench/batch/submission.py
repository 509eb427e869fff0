"""Submission of a batch job to its scheduler."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

from spbench.batch.folder import BatchJob
from spbench.errors import FailedRunError, MissingError

PATIENCE = 120.0
"""Seconds in which a scheduler must answer."""


def submit(job: BatchJob, environ: Mapping[str, str]) -> str:
    """Hand a job to its scheduler and return what that answers: the job's number, mostly.

    Raises:
        MissingError: The scheduler is not installed here.
        FailedRunError: It refused the job, or did not answer.
    """
    scheduler = job.scheduler
    program = scheduler.submit[0]
    words = [*scheduler.submit, *([] if scheduler.takes_stdin else [str(job.script)])]
    try:
        with job.script.open("rb") as script:
            done = subprocess.run(
                words,
                env=dict(environ),
                stdin=script if scheduler.takes_stdin else subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=PATIENCE,
                check=False,
            )
    except (FileNotFoundError, PermissionError):
        raise MissingError(
            f"{program} is not installed here: submit {job.script} where it is"
        ) from None
    except subprocess.TimeoutExpired:
        raise FailedRunError(
            f"{program} did not answer in {PATIENCE:g} s; submit {job.script} by hand"
        ) from None
    if done.returncode != 0:
        said = " ".join((done.stderr or done.stdout).split()) or "it said nothing"
        raise FailedRunError(f"{program} refused {job.script}: {said}")
    return done.stdout.strip()
