"""The state machines of a case, of a rank and of a launch.

Each table lists the statuses in which an event is legal, and the status after it. Readers of events
ignore an illegal event and count it: `RunState` turns it into a finding of the run.

A case::

    waiting ──case_start──► running ──case_judged──► passed, failed, error, timeout,
       ▲                                             cancelled, skipped
       └───── retry (failed, error, timeout), run_resumed (any) ──────┘

A case may be judged while it waits, and judged again. A rank of a launch::

    starting ──ready──► ready ──case_start──► setup ──progress──► working
                                              ▲  └──────┬───────────┘
                                              │     case_end
                                              │         ▼
                                              └─────── done, or error

From each of these phases except ``error``, ``bye`` leads to ``ended``. From each phase
``rank_lost`` leads to ``lost``. A rank that was not done when its launch ended is ``unfinished``.
``case_start`` is legal in starting, setup and working, too: a log may lack the line of a ``ready``
or a ``case_end``, and later reports of the rank still count. A launch::

    starting ──all ranks ready──► running ──job_end──► ended

It may also end while it starts.
"""

from __future__ import annotations

from collections.abc import Mapping

from spbench_core.events.statuses import CaseStatus, JobStatus, RankPhase

_JUDGED = tuple(status for status in CaseStatus if status.is_final)
_ALIVE = (
    RankPhase.STARTING,
    RankPhase.READY,
    RankPhase.SETUP,
    RankPhase.WORKING,
    RankPhase.DONE,
)
_BEFORE_END = tuple(phase for phase in _ALIVE if phase is not RankPhase.DONE)
_IN_CASE = {RankPhase.SETUP: RankPhase.SETUP, RankPhase.WORKING: RankPhase.WORKING}

CASE_TRANSITIONS: Mapping[str, Mapping[CaseStatus, CaseStatus]] = {
    "case_start": {
        CaseStatus.WAITING: CaseStatus.RUNNING,
        CaseStatus.RUNNING: CaseStatus.RUNNING,
    },
    "case_begin": {
        **{status: status for status in CaseStatus},
        CaseStatus.WAITING: CaseStatus.RUNNING,
    },
    "repeats_end": {CaseStatus.RUNNING: CaseStatus.RUNNING},
    "retry": {status: CaseStatus.WAITING for status in CaseStatus if status.is_bad},
    "run_resumed": dict.fromkeys(CaseStatus, CaseStatus.WAITING),
}
"""The status of a case after an event, by the event and the status before.

``case_judged`` is legal in each status, and contains the status after it.
"""

SHARED_CASE_START: Mapping[CaseStatus, CaseStatus] = {
    **CASE_TRANSITIONS["case_start"],
    **{status: status for status in _JUDGED},
}
"""The transitions by ``case_start`` if the case has a launch on each host.

A launch may fail, so that the case is judged, before another launch starts it.
"""

RANK_TRANSITIONS: Mapping[str, Mapping[RankPhase, RankPhase]] = {
    "ready": {RankPhase.STARTING: RankPhase.READY},
    "case_start": dict.fromkeys(_ALIVE, RankPhase.SETUP),
    "progress": dict.fromkeys(_IN_CASE, RankPhase.WORKING),
    "samples": _IN_CASE,
    "check": _IN_CASE,
    "metric": _IN_CASE,
    "device": _IN_CASE,
    "choice": _IN_CASE,
    "case_end": dict.fromkeys(_IN_CASE, RankPhase.DONE),
    "bye": dict.fromkeys((*_ALIVE, RankPhase.UNFINISHED), RankPhase.ENDED),
    "job_end": dict.fromkeys(_BEFORE_END, RankPhase.UNFINISHED),
    "rank_lost": dict.fromkeys(RankPhase, RankPhase.LOST),
}
"""The phase of a rank after an event, by the event and the phase before.

After a ``case_end`` with an error the phase is ``error``. Other events of ranks are legal in each
phase, and do not change it.
"""

JOB_TRANSITIONS: Mapping[str, Mapping[JobStatus, JobStatus]] = {
    "job_start": {JobStatus.ENDED: JobStatus.STARTING},
    "ready": {JobStatus.STARTING: JobStatus.STARTING},
    "job_end": {JobStatus.STARTING: JobStatus.ENDED, JobStatus.RUNNING: JobStatus.ENDED},
    "run_resumed": dict.fromkeys(JobStatus, JobStatus.ENDED),
}
"""The status of a launch after an event, by the event and the status before.

The last rank's ``ready`` makes it ``running``. A number may be used again after its launch ended.
Events of ranks are legal until then.
"""
