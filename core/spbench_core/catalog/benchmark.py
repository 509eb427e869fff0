"""Entries of the catalog: the properties of a benchmark as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from spbench_core.catalog.parameters import Param, Params
from spbench_core.events.run_events import Better, Fold

if TYPE_CHECKING:
    from spbench_core.catalog.scaling import ParamScaler
    from spbench_core.catalog.work import WorkEstimate

FAMILIES = "spbench_workers.benchmarks"
"""The package of spbench's own benchmarks: each folder in it with an ``entry.py`` is a family."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A number that a benchmark measures.

    Events and reports do not contain `separate`, `title`, `folded_title` and `remainder`.

    Attributes:
        name: Its name.
        unit: Its unit.
        better: The direction in which it improves.
        help: A description.
        fold: How the ranks' values of an iteration become one value: ``max`` for a time, because
            the slowest rank counts, and ``min`` for a bandwidth.
        part_of: The metric of the same unit that its samples are a part of in each iteration. The
            parts of a metric do not overlap; the remainder has no metric.
        waits: Whether a rank may wait for other ranks in this part. Without such parts a slow rank
            can be distinguished from the ranks that wait for it.
        separate: Whether it is measured in another loop than ``time_ms``. It is then not a part of
            that time, and views mark it.
        title: The name that views show for all metrics of this name; empty: the name without its
            unit.
        folded_title: The title of the value over all ranks.
        remainder: The work in the time that no part accounts for, if known.
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


_SLOWEST_SUFFIX = ", on the slowest rank"
TIME_MS = Metric("time_ms", "ms", "lower", f"one iteration{_SLOWEST_SUFFIX}")


def make_time_metric(iteration: str, remainder: str = "") -> Metric:
    """Return the metric ``time_ms`` with a benchmark's own description.

    Args:
        iteration: A description of one iteration, such as ``one barrier``.
        remainder: The work in the time that no part accounts for.
    """
    return replace(TIME_MS, help=f"{iteration}{_SLOWEST_SUFFIX}", remainder=remainder)


def describe_iteration(time: Metric) -> str:
    """Return the description of one iteration that `make_time_metric` was given."""
    return time.help.removesuffix(_SLOWEST_SUFFIX)


@dataclass(frozen=True, slots=True)
class Ranks:
    """The numbers of ranks of a benchmark: ``exact``, or any from ``minimum`` up.

    ``why`` is the reason for ``exact`` if it is not obvious, and ``params`` are the names of the
    parameters that determine it.
    """

    exact: int | None = None
    minimum: int = 1
    why: str = ""
    params: tuple[str, ...] = ()


class ParamError(ValueError):
    """An invalid parameter; ``param`` is its name, or None for a conflict of several."""

    def __init__(self, param: str | None, message: str) -> None:
        super().__init__(message)
        self.param = param


class IdleParamError(ParamError):
    """A parameter without effect; ``condition`` names the setting that makes it so."""

    def __init__(self, param: str, condition: str, advice: str = "leave it out") -> None:
        super().__init__(param, f"{param} does nothing {condition}; {advice}")
        self.param: str = param
        self.condition = condition

    @property
    def why(self) -> str:
        """The name of `condition` in plug-in API 1."""
        return self.condition


def _keep_params(params: Params) -> Params:
    return params


def _allow_any_ranks(_: Params) -> Ranks:
    return Ranks()


def _locate_nowhere(_: Params, __: int) -> dict[str, Any]:
    return {}


def _keep_names(names: tuple[str, ...], _: Params) -> tuple[str, ...]:
    return names


def _always_has_effect(_: str, __: Params) -> bool:
    return True


def _keep_metrics(metrics: tuple[Metric, ...], _: Params) -> tuple[Metric, ...]:
    return metrics


def _make_one_point(_: Params) -> list[Params]:
    return [{}]


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One entry of the catalog.

    Attributes:
        name: ``family.kind``.
        summary: A description in one line.
        params: Its parameters.
        metrics: The metrics that it may have.
        checks: The checks that it may make.
        measures: The cause that a slow result points to: a rank's own speed, a link, or the whole
            job.
        faults: Faults that ``--inject`` may plant in it, in addition to `COMMON_FAULTS`.
        resolve: Fills in derived parameters and rejects contradictions with a ParamError.
        ranks: Returns the numbers of ranks for complete parameters.
        points: Returns the cases that complete parameters make, if the benchmark sweeps without
            ``matrix``. A point has the parameters that differ; None removes a parameter.
        choose_checks: Returns those of its checks that are made with complete parameters.
        choose_faults: Returns those of its faults that change anything with complete parameters.
        has_effect: Whether one of the chosen faults changes anything with complete parameters.
            Forms offer only such faults; a command may plant any, and the ranks then reject it.
        choose_metrics: Returns the metrics that it has with complete parameters.
        own_lines: Whether it prints the lines of `Context.say` when it runs standalone, instead of
            the lines of the reference scripts.
        says_passed: Whether each rank then also prints that all its checks passed.
        scaled: Returns the parameters of a case for other numbers of ranks; None: cannot scale.
        throughput: The metric of the whole work over time. It is needed if the work is neither the
            same for all numbers of ranks nor in proportion to them.
        place: Returns the position of a rank for the views, such as ``{"tile": ...}``.
        runs_in: The module below `FAMILIES` that runs it, if it is not that of its name.
        checked_in: The module below `FAMILIES` with a ``check(params)`` that runs before a launch,
            in a process without MPI; None: the catalog's own checks are enough.
        begins_with: Parameters of a new case that it cannot do without.
        starter: Small values of other parameters that a form writes into a new case, if the
            defaults take longer than some seconds on two cores.
        starts_program: Whether each rank starts a program and does not use MPI itself. Each case
            and repeat then has its own launch.
        worker: The full name of the module that runs a plug-in's benchmark.
        plugin: The distribution of a plug-in, with its version; empty for spbench itself.
        work: Estimates the work of a case from complete parameters and the number of ranks; None:
            its duration is unknown before its first run.
        imports_torch: Whether its ranks import torch if their data is on the host.
        takes_devices: Whether its ranks choose GPUs in another way than by their local rank.
        version: Increased when its measurement changes. Results of two versions are not comparable.
        aliases: The parameter's name for each alias.
    """

    name: str
    summary: str
    params: tuple[Param, ...]
    metrics: tuple[Metric, ...]
    checks: tuple[str, ...]
    measures: Literal["rank", "link", "job"] = "job"
    faults: tuple[str, ...] = ()
    resolve: Callable[[Params], Params] = _keep_params
    ranks: Callable[[Params], Ranks] = _allow_any_ranks
    points: Callable[[Params], list[Params]] = _make_one_point
    choose_checks: Callable[[tuple[str, ...], Params], tuple[str, ...]] = _keep_names
    choose_faults: Callable[[tuple[str, ...], Params], tuple[str, ...]] = _keep_names
    choose_metrics: Callable[[tuple[Metric, ...], Params], tuple[Metric, ...]] = _keep_metrics
    own_lines: bool = False
    says_passed: bool = False
    scaled: ParamScaler | None = None
    throughput: str | None = None
    place: Callable[[Params, int], dict[str, Any]] = _locate_nowhere
    runs_in: str | None = None
    checked_in: str | None = None
    begins_with: Mapping[str, Any] = field(default_factory=dict)
    starter: Mapping[str, Any] = field(default_factory=dict)
    starts_program: bool = False
    worker: str | None = None
    plugin: str = ""
    work: WorkEstimate | None = None
    imports_torch: bool = True
    takes_devices: bool = False
    version: int = 1
    has_effect: Callable[[str, Params], bool] = _always_has_effect
    aliases: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        name_by_alias = {alias: param.name for param in self.params for alias in param.aliases}
        object.__setattr__(self, "aliases", name_by_alias)

    @property
    def module(self) -> str:
        """The full name of the worker module with ``run(context)``."""
        return self.worker or f"{FAMILIES}.{self.runs_in or self.name}"

    @property
    def check_module(self) -> str | None:
        """The module with ``check(params)``, which runs before a launch, or None."""
        return None if self.checked_in is None else f"{FAMILIES}.{self.checked_in}"

    def find_param(self, name: str) -> Param | None:
        """Return the parameter with a name or alias, or None."""
        name = self.aliases.get(name, name)
        return next((param for param in self.params if param.name == name), None)

    def list_checks(self, params: Params) -> tuple[str, ...]:
        """Return the checks that every rank makes with complete parameters."""
        return self.choose_checks(self.checks, params)

    @property
    def starting_params(self) -> Params:
        """The parameters of a new case that runs in seconds on a laptop."""
        return {**self.begins_with, **self.starter}

    @property
    def has_chosen_metrics(self) -> bool:
        """Whether its metrics depend on the parameters."""
        return self.choose_metrics is not _keep_metrics

    def list_metrics(self, params: Params) -> tuple[Metric, ...]:
        """Return the metrics that a case with complete parameters has."""
        return self.choose_metrics(self.metrics, params)

    def list_faults(self, params: Params) -> tuple[str, ...]:
        """Return the faults that can be planted in a case with complete parameters."""
        return self.choose_faults(self.faults, params)

    def list_effective_faults(self, params: Params) -> tuple[str, ...]:
        """Return the faults that change something in a case with complete parameters."""
        return tuple(fault for fault in self.list_faults(params) if self.has_effect(fault, params))

    def complete(self, values: Mapping[str, Any]) -> Params:
        """Return all parameters: parsed, with defaults filled in, and checked together.

        Raises:
            ExceptionGroup: of ParamError, one for each invalid parameter.
        """
        params: Params = {param.name: param.default for param in self.params}
        errors: list[ParamError] = []
        for name, value in values.items():
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

    def list_cases(self, values: Mapping[str, Any]) -> list[tuple[Params, Params]]:
        """Return the cases that parameters make: those that differ, and all of them.

        Raises:
            ExceptionGroup: as for `complete`.
        """
        params = self.complete(values)
        cases = []
        for point in self.points(params):
            differing_params = {name: value for name, value in point.items() if value is not None}
            cases.append((differing_params, self.complete(params | point) if point else params))
        return cases

    # Plug-ins made for API version 1 use these names.
    param = find_param
    checks_of = list_checks
    names_metrics = has_chosen_metrics
    metrics_of = list_metrics
    faults_of = list_faults
    cases = list_cases


# Plug-ins made for API version 1 use these names.
time_of = make_time_metric
iteration_of = describe_iteration
