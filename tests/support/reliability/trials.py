"""Trials of faults one after another, what is known of earlier ones, and the table of all."""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from support.reliability.faults import Fault
from support.reliability.trial import Seen, Trial, leftovers, sentence_of
from support.reliability.where import Place
from support.runs import RunResult

NAMED_WITHIN = 15.0
"""Seconds within which a fault that no launcher notices has to end its job."""


def tried(fault: Fault, place: Place, folder: Path, seed: int) -> Seen:
    """Try a fault once; a harness that is cut short is told as an outcome too."""
    trial = Trial(place, folder, seed)
    try:
        ended = fault.act(trial)
    except Exception as error:
        return Seen(fault.name, place.name, f"{type(error).__name__}: {error}", -1, 0.0, ["broke"])
    seconds = time.monotonic() - trial.since
    sentence = sentence_of(ended)
    run = next((path.name for path in ended.home.glob("runs/*")), "")
    wrong = list(_wrong(fault, trial, ended, sentence))
    return Seen(fault.name, place.name, sentence, ended.code, round(seconds, 1), wrong, run)


def _wrong(fault: Fault, trial: Trial, ended: RunResult, sentence: str) -> Iterable[str]:
    # A process in a namespace of its own that a signal kills has a status and no signal.
    if ended.code % 256 != fault.code:
        yield f"exit {ended.code} in place of {fault.code}"
    words = [word.format(rank=trial.victim, host=trial.host) for word in fault.told]
    yield from (f"{word!r} is not said" for word in words if word not in sentence)
    if fault.victim and not re.match(
        rf"rank {trial.victim} on {re.escape(trial.host)}\b", sentence
    ):
        yield f"rank {trial.victim} on {trial.host} is not named first"
    if trial.named is not None and trial.named > NAMED_WITHIN:
        yield f"the job ended after {trial.named:.1f} s"
    if fault.goes_on and list(ended.statuses.values())[-1] != "passed":
        yield "the case after it did not pass"
    if "Traceback" in ended.stderr:
        yield "a traceback on stderr"


def tried_often(fault: Fault, place: Place, repeats: int, seed: int) -> list[Seen]:
    """Try a fault several times, and look for what all of them have left together.

    Most of a trial is waiting: two go on at once where they do not share hosts.
    """
    at_once = 1 if place.hosts or place.slurm else 2
    with tempfile.TemporaryDirectory(prefix="spf", ignore_cleanup_errors=True) as folder:
        folders = [Path(folder) / str(number) for number in range(repeats)]
        for one in folders:
            one.mkdir()
        with ThreadPoolExecutor(at_once) as pool:
            seeds = range(seed, seed + repeats)
            found = list(pool.map(lambda one, seed: tried(fault, place, one, seed), folders, seeds))
        left = leftovers([seen.run for seen in found if seen.run])
    for seen in found:
        if seen.run in left:
            seen.wrong.append("processes are left after 15 s")
    return found


class Log:
    """The outcomes of trials in a file, a line each, so that a command can be taken up again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.seen = [Seen(**json.loads(line)) for line in lines]

    def of(self, fault: str, place: str) -> list[Seen]:
        """Return the outcomes of a fault at a place."""
        return [seen for seen in self.seen if (seen.fault, seen.place) == (fault, place)]

    def add(self, found: Iterable[Seen]) -> None:
        """Keep outcomes."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            for seen in found:
                self.seen.append(seen)
                file.write(seen.as_line() + "\n")


def table(faults: Sequence[Fault], places: Sequence[str], log: Log) -> str:
    """Return the table of outcomes as Markdown: a row for each fault and place."""
    rows = ["| fault | launcher | expected | seen | seconds | right |", "| --- " * 6 + "|"]
    for fault in faults:
        tried_at = [place for place in fault.places if place in places]
        outcomes = ((place, log.of(fault.name, place)) for place in tried_at)
        rows += [_row(fault, place, found) for place, found in outcomes if found]
    return "\n".join(rows) + "\n"


def _row(fault: Fault, place: str, found: Sequence[Seen]) -> str:
    right = [seen for seen in found if not seen.wrong]
    shown = (right or list(found))[-1]
    expected = ["the victim first"] if fault.victim else []
    expected += [f"“{word}”" for word in fault.told]
    expected += [f"exit {fault.code}"] + (["the next case passes"] if fault.goes_on else [])
    # without the trial's temporary folder
    sentence = re.sub(r"\S*/spf\w+/\d+/", "", shown.sentence)
    sentence = sentence.replace("|", "\\|").replace("\n", " ")
    if len(sentence) > 160:
        sentence = sentence[:159] + "…"
    seconds = sorted(seen.seconds for seen in found)[len(found) // 2]
    cells = [fault.name, place, ", ".join(expected), sentence or "-", f"{seconds:g}"]
    return f"| {' | '.join(cells)} | {len(right)} of {len(found)} |"
