"""Noise: cases whose times are not the hardware's alone, since other work had its cores, and why.

A rank that spins while it waits for a message keeps its core: where it nevertheless waited for one,
something else ran there. Where ranks share CPUs they wait for each other, as much as the CPUs that
they may run on say; only what is beyond that is other work's. A rank that waits for a straggler has
time to lose: that it waited for a core as well does not make the times noisy.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Mapping
from itertools import chain
from statistics import fmean

from spbench.record.case_state import CaseRank, CaseState
from spbench.record.state import RunState

WAITED_ALONE = 0.2
"""The share of its time that a rank with a core of its own may wait for it."""
WAITED_SHARED = 0.1
"""The share beyond what is expected that a host's ranks may wait on average, where they share."""
STOLEN, THROTTLED, SLOWED = 0.05, 0.05, 0.2
"""The shares of the time that a hypervisor and a quota may take, and of the base clock rate."""
_QUIET = "run it again when the machine is quiet"

_Ranks = Mapping[int, CaseRank]


def noise_of(case: CaseState) -> str | None:
    """Return why a case's times are noisy, in one sentence without its stop; None: they are not."""
    ranks = case.measured.ranks
    sentences = chain(_waited(ranks, _waiting(case)), *(rule(ranks) for rule in _RULES))
    return next(sentences, None)


def noisy_cases(state: RunState) -> list[str]:
    """Return what a run says of noise: other work when it began, then its noisy cases."""
    began = state.run.environment.get("other_work", ()) if state.run is not None else ()
    told = [f"Noisy: {sentence} when the run began." for sentence in began]
    found = [(case.id, why) for case in state.cases.values() if (why := noise_of(case))]
    if found:
        first, why = found[0]
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        told.append(f"Noisy: {first}{more}: {why}; {_QUIET}.")
    return told


def _waiting(case: CaseState) -> set[int]:
    """Return the ranks that wait for stragglers: all others, if these are known as the cause."""
    causes = [straggler for straggler in case.verdict.stragglers if straggler.cause]
    slow_ranks = {straggler.rank for straggler in causes}
    slow_hosts = {straggler.host for straggler in causes if straggler.rank is None}
    ranks = case.measured.ranks.items() if causes else ()
    return {rank for rank, part in ranks if rank not in slow_ranks and part.host not in slow_hosts}


def _waited(ranks: _Ranks, waiting: Container[int]) -> Iterator[str]:
    """Ranks that waited for a core longer than they do for each other.

    Ranks that are ``waiting`` for a straggler are left out.
    """
    expected = _expected(ranks)
    by_host: dict[str, list[float]] = defaultdict(list)
    alone: list[tuple[float, int]] = []
    for rank, part in ranks.items():
        if rank in waiting:
            continue
        waited = part.disturbed.get("waited", 0.0)
        if expected[rank] > 0:
            by_host[part.host].append(waited - expected[rank])
        else:
            alone.append((waited, rank))
    share, rank = max(alone, default=(0.0, 0))
    if share > WAITED_ALONE:
        host = ranks[rank].host
        yield f"rank {rank} on {host} waited {share:.0%} of its time for a core: other work had it"
    for host, beyond in by_host.items():
        if fmean(beyond) > WAITED_SHARED:
            told = f"the ranks on {host} waited {fmean(beyond):.0%} of their time for a core"
            yield f"{told}, beyond what they wait for each other: other work had it"


def _expected(ranks: _Ranks) -> dict[int, float]:
    """The share of its time that each rank waits for others on its CPUs, when all of them spin."""
    crowd = Counter((part.host, cpu) for part in ranks.values() for cpu in part.cpus)
    room = {
        rank: sum(1.0 / crowd[part.host, cpu] for cpu in part.cpus) for rank, part in ranks.items()
    }
    return {rank: max(0.0, 1.0 - free) if free else 0.0 for rank, free in room.items()}


def _stolen(ranks: _Ranks) -> Iterator[str]:
    share, host = _worst(ranks, "stolen")
    if share > STOLEN:
        yield f"the hypervisor of {host} gave {share:.0%} of its cores' time to other machines"


def _throttled(ranks: _Ranks) -> Iterator[str]:
    share, host = _worst(ranks, "throttled")
    if share > THROTTLED:
        yield f"the CPU quota of the control group stopped ranks on {host} for {share:.0%} of it"


def _hot(ranks: _Ranks) -> Iterator[str]:
    times, host = _worst(ranks, "hot")
    if times > 0:
        yield f"CPUs of {host} were slowed down for their heat, {times:.0f} times"


def _slowed(ranks: _Ranks) -> Iterator[str]:
    share, host = _worst(ranks, "slowed")
    if share > SLOWED:
        yield f"a CPU of {host} ran {share:.0%} below its base clock rate"


_RULES = (_stolen, _throttled, _hot, _slowed)


def _worst(ranks: _Ranks, name: str) -> tuple[float, str]:
    """The largest value of a name, and the host of its rank."""
    values = ((part.disturbed.get(name, 0.0), part.host) for part in ranks.values())
    return max(values, default=(0.0, ""))
