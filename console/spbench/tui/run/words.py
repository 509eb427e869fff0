"""Sentences about a run: stragglers, failed checks and cases with their reasons, findings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from spbench.record.case_state import CaseState
from spbench.record.judge import failed_checks
from spbench.record.machine.cores import crowded
from spbench.record.noise import noise_of
from spbench.record.number_formatting import NOISY
from spbench.tui.feed import Feed
from spbench.tui.signs import signed

MOST_STRAGGLERS = 12
MUTED = "$foreground 60%"
"""In a style, unlike in a rule, `$text-muted` would be as bright as any other text."""
_COLOURS = {
    "passed": "$text-success",
    "failed": "$text-error",
    "error": "$text-error",
    "timeout": "$text-error",
    "slow": "$text-warning",
    "noisy": "$text-warning",
    "note": MUTED,
    "running": "$text-primary",
    "cancelled": MUTED,
    "skipped": MUTED,
    "unfinished": "$text-warning",
}
_SIGNS = {"slow": "▲ slow", "noisy": f"{NOISY} noisy", "note": "•"}


@dataclass(frozen=True, slots=True)
class Word:
    """A sentence, its subject, and its kind: a verdict, ``slow``, ``noisy`` or ``note``."""

    kind: str
    about: str
    sentence: str

    @property
    def sign(self) -> str:
        """The kind of the sentence, as glyph and word."""
        return _SIGNS.get(self.kind) or signed(self.kind)

    @property
    def text(self) -> str:
        """The sentence, and before it what it is about."""
        return f"{self.about}: {self.sentence}" if self.about else self.sentence

    @property
    def line(self) -> str:
        """The sentence with its sign."""
        return f"{self.sign} {self.text}"

    def content(self) -> Content:
        """Return the line, its sign in its colour."""
        return Content.assemble((self.sign, colour(self.kind)), f" {self.text}")


def colour(kind: str) -> str:
    """Return the style of a word's sign, or of a status."""
    return _COLOURS.get(kind, "")


class Words:
    """Makes the sentences about a run; those about a judged case once."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._judged: dict[str, tuple[Word, ...]] = {}
        self._sharing: dict[int, str | None] = {}

    def all(self) -> list[Word]:
        """Return everything there is to say, the most pressing first."""
        return [
            *self._of_run(),
            *self._stragglers(),
            *(word for case in self._feed.state.cases.values() for word in self._of_case(case)),
            *(Word("note", "", sentence) for sentence in self._findings()),
            *self._notes(),
        ]

    def _findings(self) -> list[str]:
        """Return the findings of the run without stragglers, which are shown with their case."""
        cases = self._feed.state.cases.values()
        known = {slow.finding(case.id) for case in cases for slow in case.verdict.stragglers}
        return [finding for finding in self._feed.state.findings if finding not in known]

    def _of_run(self) -> Iterator[Word]:
        feed = self._feed
        if feed.failure:
            yield Word("error", "", feed.failure)
        elif feed.status == "unfinished":
            yield Word("unfinished", "", _why_unfinished(feed.elsewhere))
        for error in feed.state.errors:
            yield Word("error", "", error)
        if feed.state.left_out:
            yield Word("error", "", feed.state.left_out)

    def _stragglers(self) -> Iterator[Word]:
        case = self._feed.rows.case
        if self._feed.ended or case is None or case.status != "running":
            return  # a judged case has its own
        found = self._feed.stragglers.sentences()
        for sentence in found[:MOST_STRAGGLERS]:
            yield Word("slow", "", sentence)
        if len(found) > MOST_STRAGGLERS:
            yield Word("slow", "", f"and {len(found) - MOST_STRAGGLERS} ranks more")

    def _of_case(self, case: CaseState) -> tuple[Word, ...]:
        if case.status == "waiting":
            return ()
        if case.status == "running":
            return _failed(case) if not all(case.measured.checked.values()) else ()
        if case.id not in self._judged:
            self._judged[case.id] = _judged(case)
        return self._judged[case.id]

    def _notes(self) -> Iterator[Word]:
        if self._feed.elsewhere and not self._feed.ended:
            told = f"the run is running on {self._feed.elsewhere}, as far as its log shows"
            yield Word("note", "", f"{told}; it can be cancelled there")
        run = self._feed.state.run
        if run is not None and not self._feed.ended:  # afterwards it stands among the findings
            for sentence in run.environment.get("other_work", ()):
                yield Word("note", "", sentence)
        jobs, ranks = self._feed.state.jobs, self._feed.state.ranks
        job = jobs[max(jobs)] if jobs else None
        if job is None:
            return
        if job.oversubscribed:
            yield Word("note", "", "more ranks than cores: the times are not the hardware's")
            return
        if job.number not in self._sharing:
            ready = [rank for rank in ranks.values() if rank.cpus]
            if len(ready) == job.np:
                self._sharing[job.number] = crowded(ready)
        if sharing := self._sharing.get(job.number):
            yield Word("note", "", sharing)


def _why_unfinished(host: str | None) -> str:
    gone = f"nothing came from its console on {host} for long" if host else "its console was killed"
    return f"the run has no end: {gone}; what it had measured is here"


def _failed(case: CaseState) -> tuple[Word, ...]:
    return tuple(Word("failed", case.id, sentence) for sentence in failed_checks(case))


def _judged(case: CaseState) -> tuple[Word, ...]:
    """The reason of a case that has not passed, each check that failed, and noise."""
    why = noise_of(case)
    stragglers = case.verdict.stragglers[:MOST_STRAGGLERS]
    remarks = [Word("slow", case.id, straggler.sentence) for straggler in stragglers]
    remarks += [Word("noisy", case.id, why)] if why else []
    if case.status == "passed":
        return tuple(remarks)
    words = _failed(case)
    if case.verdict.reason and all(word.sentence != case.verdict.reason for word in words):
        words = (Word(case.status, case.id, case.verdict.reason), *words)
    return (*(words or (Word(case.status, case.id, "no reason was given"),)), *remarks)


class WordsPanel(VerticalScroll):
    """The sentences, one below the other."""

    HELP = """\
What there is to say of the run: who lags behind and for how long, which checks failed on which
ranks with the largest error and where, why cases did not pass, and what the run has found.
y copies it all; up and down scroll."""
    DEFAULT_CSS = """
    WordsPanel { height: 1fr; scrollbar-size: 1 1; }
    WordsPanel Static { height: auto; }
    """

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._text = Static("", markup=False)
        self._shown: list[Word] | None = None

    def compose(self) -> Iterator[Static]:
        yield self._text

    def show(self, words: list[Word]) -> None:
        """Show these words."""
        if words == self._shown:
            return
        self._shown = words
        nothing = Content.assemble(("no problems found so far", MUTED))
        self._text.update(Content("\n").join(word.content() for word in words) or nothing)
