"""Entries of the catalog: a benchmark's parameters, metrics, checks and rank counts as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from spbench_core.catalog.parameters import Param, Params

if TYPE_CHECKING:
    from spbench_core.catalog.scaling import ParamScaler
    from spbench_core.catalog.work import WorkEstimate

FAMILIES = "spbench_workers.benchmarks"
"""The package of spbench's own benchmarks: each folder in it with an ``entry.py`` is a family."""

Better = Literal["lower", "higher", "none"]
Fold = Literal["max", "min", "sum", "mean"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A number that a benchmark gives.

    ``fold`` says how the ranks' values of one iteration become the iteration's: a time is as long
    as its slowest rank's (``max``), a bandwidth as low as its lowest (``min``). ``part_of`` names
    the metric of the same unit of which its samples are a share, iteration by iteration: views show
    where that one goes. Parts of one metric do not overlap; what they leave is the rest.
    ``waits`` marks a part in which a rank may wait for other ranks: without these parts a
    slow rank can be distinguished from the ranks that wait for it. ``separate`` marks a number
    that is measured in another loop than ``time_ms``: it is not a part of that time, and views mark
    it. ``title`` is the name for people, in all benchmarks with a metric of this name, if it is not
    the name without its unit; ``folded_title`` is that of the value over all ranks. ``remainder``
    says what takes the time that no part accounts for, if that is known. Events and reports have
    none of these four.
    """

    name: str
    unit: str
    better: Better
    help: str
    fold: Fold = "max"
    part_of: str | None = None
    waits: bool = False
    separate: bool = False
    title: str = ""
    folded_title: str = ""
    remainder: str = ""


_OF_SLOWEST = ", as long as the slowest rank's"
TIME_MS = Metric("time_ms", "ms", "lower", f"one iteration{_OF_SLOWEST}")


def make_time_metric(iteration: str, remainder: str = "") -> Metric:
    """Return the metric of a benchmark's time.

    Args:
        iteration: What one iteration is, such as ``one barrier``.
        remainder: What takes the time that its parts leave.
    """
    return replace(TIME_MS, help=f"{iteration}{_OF_SLOWEST}", remainder=remainder)


def describe_iteration(time: Metric) -> str:
    """Return the description of one iteration, from the metric of a benchmark's time."""
    return time.help.removesuffix(_OF_SLOWEST)


@dataclass(frozen=True, slots=True)
class Ranks:
    """The numbers of ranks that a benchmark runs on: ``exact``, or any from ``minimum`` up.

    ``why`` says what asks for ``exact``, where that is not plain.
    """

    exact: int | None = None
    minimum: int = 1
    why: str = ""


class ParamError(ValueError):
    """The error of a wrong parameter, with its name; None for the parameters as a whole."""

    def __init__(self, param: str | None, message: str) -> None:
        super().__init__(message)
        self.param = param


class IdleParamError(ParamError):
    """The error of a parameter that does nothing beside the others; ``why`` says what stops it."""

    def __init__(self, param: str, condition: str, advice: str = "leave it out") -> None:
        super().__init__(param, f"{param} does nothing {condition}; {advice}")
        self.param: str = param
        self.condition = condition


def _as_given(params: Params) -> Params:
    return params


def _any_ranks(_: Params) -> Ranks:
    return Ranks()


def _no_tile(_: Params, __: int) -> dict[str, Any]:
    return {}


def _all_of(names: tuple[str, ...], _: Params) -> tuple[str, ...]:
    return names


def _all_metrics(metrics: tuple[Metric, ...], _: Params) -> tuple[Metric, ...]:
    return metrics


def _one_point(_: Params) -> list[Params]:
    return [{}]


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One entry of the catalog.

    Attributes:
        name: ``family.kind``.
        measures: The cause that a slow result points to: a rank's own speed, a link, or the whole
            job.
        resolve: Fills in derived parameters and refuses contradictions with a ParamError.
        ranks: Says from complete parameters how many ranks there must be.
        points: Says from complete parameters which cases they make, for a benchmark that sweeps by
            itself: of each the parameters that differ, where None takes a parameter away.
        choose_checks: Says from its checks and complete parameters which of them are made.
        choose_faults: Says the same of its faults, which of them change anything.
        choose_metrics: Says from its metrics and complete parameters which there are.
        own_lines: Whether by hand it prints lines of its own (`Context.say`) instead of the
            reference scripts'.
        says_passed: Whether each rank then also says that all its checks passed.
        scaled: Returns the parameters of a case at other numbers of ranks; None: it cannot be.
        throughput: The metric of the whole work over time, where the work is not the same or in
            proportion to the ranks at each number of them.
        place: Says where a rank stands, ``{"tile": ...}``, for the views.
        faults: Faults that ``--inject`` may plant in it, beside those that every benchmark has.
        runs_in: The module below `FAMILIES` that runs it, if not that of its name.
        checked_in: The module below `FAMILIES` whose ``check(params)`` is asked before a
            launch, in a process without MPI; None: what the catalog knows is enough.
        begins_with: What a new case of it is given, where it cannot be without.
        starts_program: Whether each rank starts a program in its place, and no MPI of its own: each
            case and repeat then has a launch to itself.
        worker: The whole name of the module that runs a plug-in's benchmark.
        plugin: The distribution of a plug-in, with its version; empty for our own.
        work: Estimates the work of a case from complete parameters and the number of ranks; None:
            its duration is unknown before its first run.
        imports_torch: Whether its ranks import torch if their data is on the host.
        takes_devices: Whether its ranks take GPUs in another way than by their local rank.
        version: Raised where it comes to measure something else: figures of two versions do not
            compare.
    """

    name: str
    summary: str
    params: tuple[Param, ...]
    metrics: tuple[Metric, ...]
    checks: tuple[str, ...]
    measures: Literal["rank", "link", "job"] = "job"
    faults: tuple[str, ...] = ()
    resolve: Callable[[Params], Params] = _as_given
    ranks: Callable[[Params], Ranks] = _any_ranks
    points: Callable[[Params], list[Params]] = _one_point
    choose_checks: Callable[[tuple[str, ...], Params], tuple[str, ...]] = _all_of
    choose_faults: Callable[[tuple[str, ...], Params], tuple[str, ...]] = _all_of
    choose_metrics: Callable[[tuple[Metric, ...], Params], tuple[Metric, ...]] = _all_metrics
    own_lines: bool = False
    says_passed: bool = False
    scaled: ParamScaler | None = None
    throughput: str | None = None
    place: Callable[[Params, int], dict[str, Any]] = _no_tile
    runs_in: str | None = None
    checked_in: str | None = None
    begins_with: Mapping[str, Any] = field(default_factory=dict)
    starts_program: bool = False
    worker: str | None = None
    plugin: str = ""
    work: WorkEstimate | None = None
    imports_torch: bool = True
    takes_devices: bool = False
    version: int = 1
    aliases: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        names = {alias: param.name for param in self.params for alias in param.aliases}
        object.__setattr__(self, "aliases", names)

    @property
    def module(self) -> str:
        """The worker module whose ``run(context)`` runs it."""
        return self.worker or f"{FAMILIES}.{self.runs_in or self.name}"

    @property
    def check_module(self) -> str | None:
        """The module with ``check(params)``, which runs before a launch; None if none is needed."""
        return None if self.checked_in is None else f"{FAMILIES}.{self.checked_in}"

    def find_param(self, name: str) -> Param | None:
        """Return the parameter of that name or alias, None where there is none."""
        name = self.aliases.get(name, name)
        return next((param for param in self.params if param.name == name), None)

    def list_checks(self, params: Params) -> tuple[str, ...]:
        """Return the checks that every rank makes under these parameters, which are complete."""
        return self.choose_checks(self.checks, params)

    @property
    def has_chosen_metrics(self) -> bool:
        """Whether its parameters say which metrics there are."""
        return self.choose_metrics is not _all_metrics

    def list_metrics(self, params: Params) -> tuple[Metric, ...]:
        """Return the metrics under these parameters, which are complete."""
        return self.choose_metrics(self.metrics, params)

    def list_faults(self, params: Params) -> tuple[str, ...]:
        """Return the faults that can be planted under these parameters, which are complete."""
        return self.choose_faults(self.faults, params)

    def complete(self, given: Mapping[str, Any]) -> Params:
        """Return all parameters, read, defaults filled in and contradictions refused.

        Raises:
            ExceptionGroup: of ParamError, one for each parameter that is wrong.
        """
        params: Params = {param.name: param.default for param in self.params}
        errors: list[ParamError] = []
        for name, value in given.items():
            param = self.find_param(name)
            if param is None:
                errors.append(ParamError(name, f"{self.name} has no parameter {name!r}"))
            elif value is not None:
                try:
                    params[param.name] = param.read(value)
                except ValueError as error:
                    errors.append(ParamError(name, f"{name}: {error}"))
        if not errors:
            try:
                return self.resolve(params)
            except ParamError as error:
                errors.append(error)
        raise ExceptionGroup(f"parameters of {self.name}", errors)

    def list_cases(self, given: Mapping[str, Any]) -> list[tuple[Params, Params]]:
        """Return the cases of these parameters: for each those that differ, and all of them.

        Raises:
            ExceptionGroup: as for `complete`.
        """
        params = self.complete(given)
        made = []
        for point in self.points(params):
            differs = {name: value for name, value in point.items() if value is not None}
            made.append((differs, self.complete(params | point) if point else params))
        return made
