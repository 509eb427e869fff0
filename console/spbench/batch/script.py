"""The bash script of a batch job: directives, modules, and the launches in order."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from spbench import __version__
from spbench.batch.launches import HOSTFILE_NAME, find_added_variables
from spbench.batch.schedulers.scheduler import Allocation, Scheduler
from spbench.launch.jobs import Job, Launch
from spbench.launch.program import find_interpreter, wrap_argv
from spbench_core.events.rank_events import ENV_CASES, ENV_EVENTS_DIR
from spbench_core.number_text import format_quantity

KILL_AFTER = 30
"""Seconds between SIGTERM and SIGKILL for a launcher."""
_SPARE = 60
"""Seconds after the last deadline of its ranks at which a launch is ended."""

_FUNCTIONS = r"""
rm -f "$dir/ended"
now() { date +%s.%N; }
echo "$(now) @JOB_ID@" >>"$dir/starts"
stopped= child= worst=0

# The batch system ends a job by a signal: the launch under way is ended, and no other begins.
stop() {
  [ -n "$stopped" ] || stopped="$1 $(now)"
  [ -z "$child" ] || kill -TERM "$child" 2>/dev/null
}
for name in TERM INT HUP USR1 USR2 XCPU; do trap "stop $name" "$name"; done
trap 'echo "$(now) $stopped" >"$dir/ended"' EXIT

# supervise FOLDER SECONDS COMMAND...: run a launch to its end, and write its status.
supervise() {
  local folder=$1 seconds=$2 status
  shift 2
  export @EVENTS@="$folder/events" @CASES@="$folder/cases.json"
  now >"$folder/started"
  # Everybody can read the arguments of timeout and env, so the values go by export.
  (
    set -- "$(type -P timeout)" --kill-after=@KILL@ "$seconds" "$@"
    [ "${#variables[@]}" = 0 ] || export "${variables[@]}"
    exec "$@"
  ) </dev/null >"$folder/stdout.log" 2>"$folder/stderr.log" &
  child=$!
  [ -z "$stopped" ] || kill -TERM "$child"
  wait "$child"
  status=$?
  # a signal ends the wait, not the launch
  while kill -0 "$child" 2>/dev/null; do
    wait "$child"
    status=$?
  done
  child=
  echo "$status $(now) $stopped" >"$folder/status"
  return "$status"
}

# run JOB SECONDS COMMAND...: launch until none of the job's cases is left, or nothing helps.
run() {
  local job=$dir/jobs/$1 seconds=$2 number=1
  shift 2
  while [ -z "$stopped" ]; do
    while [ -d "$job/$number" ]; do number=$((number + 1)); done
    mkdir "$job/$number" || return
    if [ "$number" = 1 ]; then
      cp "$job/cases.json" "$job/1/cases.json"
    elif ! "${remaining[@]}" "$job" "$number" 2>"$job/remaining.log"; then
      rmdir "$job/$number"
      return
    fi
    if supervise "$job/$number" "$seconds" "$@"; then return; else worst=$?; fi
  done
}
"""

_HOSTS_FUNCTION = r"""
# hosts RANKS [MOST]: the hosts of the allocation with their ranks, filled in their order.
hosts() {
  @HOSTS@ | awk -v np="$1" -v most="${2:-0}" '
    !seen[$1]++ { host[++n] = $1 }
    END {
      each = most ? most : int((np + n - 1) / n)
      for (i = 1; i <= n && np > 0; i++) {
        print host[i] ":" (np < each ? np : each)
        np -= each
      }
    }'
}
"""

_EXIT = """
[ -z "$stopped" ] || exit 143
exit "$worst"
"""


@dataclass(frozen=True, slots=True)
class BatchScript:
    """The parts of a script.

    Attributes:
        suite: The suite's name.
        folder: The absolute path of the batch job's folder.
        cwd: The folder in which the ranks run.
        launches: The jobs with their launches, in order.
        environ: The environment for which the launches were planned.
    """

    suite: str
    scheduler: Scheduler
    allocation: Allocation
    folder: Path
    cwd: str
    launches: Sequence[tuple[Job, Launch]]
    environ: Mapping[str, str]

    def render(self) -> str:
        """Return the script.

        Raises:
            UsageError: The scheduler has no option for a setting.
        """
        return "\n".join(
            [
                *self._render_directives(),
                *self._render_set_up(),
                self._render_functions(),
                *self._render_launches(),
            ]
        )

    def _render_directives(self) -> Iterator[str]:
        settings = self.allocation.settings
        prefix = self.scheduler.prefix
        # Only login shells define the function `module`.
        yield "#!/bin/bash -l" if settings.modules else "#!/bin/bash"
        yield from (prefix + line for line in self.scheduler.directives(self.allocation))
        yield from (prefix + line for line in settings.directives)
        folder = shlex.quote(str(self.folder))
        yield f"# spbench {__version__}, suite {self.suite}: spbench collect {folder}"
        yield ""

    def _render_set_up(self) -> Iterator[str]:
        settings = self.allocation.settings
        yield f"cd {shlex.quote(self.cwd)} || exit"
        if settings.modules:
            yield f"module load {shlex.join(settings.modules)} || exit"
        yield from settings.lines
        # After the lines of the settings, which may use a variable with this name.
        yield f"dir={shlex.quote(str(self.folder))}"

    def _render_functions(self) -> str:
        text_by_placeholder = {
            "@JOB_ID@": self.scheduler.job_id,
            "@EVENTS@": ENV_EVENTS_DIR,
            "@CASES@": ENV_CASES,
            "@KILL@": str(KILL_AFTER),
            "@HOSTS@": self.scheduler.hosts_command,
        }
        text = _FUNCTIONS
        if any(launch.spec.hostfile for _, launch in self.launches):
            text += _HOSTS_FUNCTION
        for placeholder, value in text_by_placeholder.items():
            text = text.replace(placeholder, value)
        return text

    def _render_launches(self) -> Iterator[str]:
        early = self.scheduler.early_signal(self.allocation)
        if early is not None:
            yield early
        for job, launch in self.launches:
            yield from self._render_launch(job, launch)
        yield _EXIT

    def _render_launch(self, job: Job, launch: Launch) -> Iterator[str]:
        python = find_interpreter(job.settings)
        remaining_argv = wrap_argv(job.settings, (python, "-m", "spbench_workers.remaining"))
        shown_ids = ", ".join(case.id for case in job.cases[:3])
        if len(job.cases) > 3:
            shown_ids += ", ..."
        ranks = format_quantity(job.np, "rank")
        yield f"# job {job.number}: {ranks}, {launch.version}: {shown_ids}"
        if launch.spec.rank_env:
            remaining_argv = ("env", *_format_assignments(launch.spec.rank_env), *remaining_argv)
        yield f"remaining=({shlex.join(remaining_argv)})"
        if launch.spec.hostfile is not None:
            ranks_per_host = job.settings.ranks_per_host or ""
            yield f'hosts {job.np} {ranks_per_host} >"$dir/jobs/{job.number}/{HOSTFILE_NAME}"'
        variables = _format_assignments(find_added_variables(launch, self.environ))
        yield f"variables=({shlex.join(variables)})"
        yield f"run {job.number} {compute_time_limit(job)} {shlex.join(launch.command.argv)}"


def _format_assignments(variables: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in variables.items()]


def compute_time_limit(job: Job) -> int:
    """Return the seconds after which the script ends a launch of the job."""
    case_seconds = sum(case.launch.timeout * case.repeat for case in job.cases)
    return math.ceil(case_seconds + 2 * job.settings.start_timeout) + _SPARE
