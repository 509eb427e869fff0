"""Short explanations of tasks that newcomers look for, which the palette finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Static

from spbench.tui.dialogs import Modal
from spbench.tui.widgets.prose import render_prose


@dataclass(frozen=True, slots=True)
class Topic:
    """An explanation; its title has the words by which it is found."""

    title: str
    text: str


TOPICS = (
    Topic(
        "undo and redo changes of a suite",
        """\
On the Suites page, Ctrl+Z undoes the last change of the open suite and Ctrl+Y redoes it. That
includes cases that were added, edited or deleted with a form. The lower border of the text names
the undone change.

The two keys are shown in the footer as soon as there is a change.

Texts that are not saved survive a crash: the console offers them when it starts again.""",
    ),
    Topic(
        "batch jobs with Slurm, PBS, LSF or Flux",
        """\
Run a suite as a batch job if nodes cannot reach this machine, or if jobs wait for hours. Commands
in a shell do that:

 `spbench script suites/halo.yaml --scheduler slurm` writes a folder with the batch script job.sh.
 `spbench submit suites/halo.yaml --output job` writes the folder and submits the script.
 `spbench collect job` makes a run of the job's measurements, also while it is running.

Collected runs are on the Results page. Account, partition, time limit and nodes are in launch.batch
of a suite, or for all suites in ~/.config/spbench/site.yaml. The file docs/batch.md has an example.

Inside an allocation, start the console there: it runs suites on the hosts of the allocation.""",
    ),
    Topic(
        "launchers: mpirun, mpiexec, mpirun_rsh, srun",
        """\
The Suites page shows the exact launch line of the selected case, and y copies it.

 L chooses the launcher. If it is not installed here, its lines are shown for an MPI library of your
choice, for use on another machine.
 H (Choose hosts) chooses the hosts: a hostfile, or a list such as node[01-04]:2.
 E adds variables to the environment of the ranks.

launch in a suite has further settings, such as args with options of the launcher. In a shell,
`spbench command SUITE` prints all launch lines of a suite.""",
    ),
    Topic(
        "suite-wide defaults of all cases",
        """\
A suite can have values that each case has unless it sets them. On the Suites page, Ctrl+D opens a
form for them. The command of a case marks the parameters that it inherits. In the text they are:

defaults:
  np: 4
  repeat: 3
  params:
    iterations: 200

Parameters such as iterations are in params. A benchmark ignores those that it does not have.""",
    ),
    Topic(
        "compare runs, or a run with a baseline",
        """\
On the Results page, c compares the selected run with the one before it. To choose the runs, mark
two with Space first: a is the older one, b the newer one.

B sets the selected run as a baseline under a name, and b compares the selected run with a baseline.
A case is better or worse only if its difference is larger than that of earlier runs.

In a shell, `spbench compare` and `spbench gate check` do the same, with an exit code for CI.""",
    ),
    Topic(
        "find a slow rank or host",
        """\
On the Run page, o puts the slowest rank first. The column "no waits" is the time of a rank without
waits for slower ones: the slow rank has the largest. Enter shows the parts of its time.

Findings name a slow rank or host and its factor, on the Run page and on the Results page. The Hosts
page shows the load of hosts and other causes.""",
    ),
    Topic(
        "test the checks with a planted fault",
        """\
F7 on the Suites page runs the marked cases, or the selected one, with a planted fault, such as a
slow rank or a wrong value. The run must notice it: a check that cannot fail would be worthless. If
it does, the case has the status "fault found", which is what you want; "fault missed" is the bad
outcome.

Tab in the dialog goes to the rank of the fault, by default the last. With several marked cases, Tab
and space plant it in one of them only. slow takes a factor: slow=3.

In a shell, `spbench run SUITE --inject slow=1.5,rank=0` does the same. A run with planted faults
never passes: its exit code is not 0.""",
    ),
)


class TopicScreen(Modal[None]):
    """An explanation in front of the page."""

    HELP: ClassVar[str] = "An explanation. The arrow keys scroll, Escape closes it."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "app.pop_screen", "Close", id="topic.close"),
    ]
    DEFAULT_CSS = """
    TopicScreen Static { height: auto; }
    """

    def __init__(self, topic: Topic) -> None:
        super().__init__()
        self._topic = topic

    def compose(self) -> ComposeResult:
        with VerticalScroll() as frame:
            frame.border_title = self._topic.title
            frame.border_subtitle = "Esc closes"
            yield Static(render_prose(self._topic.text))
