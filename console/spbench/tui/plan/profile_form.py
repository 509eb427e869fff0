"""The form of a profile to measure: parameters of a model, and the command."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from spbench.errors import SpbenchError
from spbench.planner.profile.measurement import BENCHMARK, make_suite_word
from spbench.planner.profile_process import (
    MEASUREMENT_PARAMS,
    MODELS,
    OWN_MODEL,
    PROFILE_FOLDER,
    MeasurableModel,
    ProfileRequest,
    plan_measurement,
)
from spbench.suites.edit.fields import Field, list_param_fields
from spbench.suites.edit.form_values import format_text
from spbench.tui.context import ConsoleContext
from spbench.tui.form.field_form import FieldForm
from spbench.tui.form.row_list import RowList
from spbench.tui.form.text_reader import TextReader
from spbench.tui.form.texts import FormTexts
from spbench_core.catalog import BENCHMARKS
from spbench_core.catalog.default_texts import format_default_texts
from spbench_core.catalog.parameters import Param

_MODEL = "model"
_FILE = Param("file", "text", None, "file to write, in this folder")
_FILE_FIELD = Field(_FILE.name, _FILE.kind, _FILE.help, "", "a path", param=_FILE, path=("file",))


class ProfileRows(RowList):
    """The rows of a profile: the network, the measurement, and the file.

    Args:
        model: The kind of network.
        initial_params: The parameters with a first value.
    """

    DEFAULT_CSS = """
    ProfileRows .file Input { width: 70%; max-width: 60; }
    """

    def __init__(self, model: MeasurableModel, initial_params: Mapping[str, Any], id: str) -> None:
        self.network_fields = _list_fields(model.params)
        self.measurement_fields = _list_fields(MEASUREMENT_PARAMS)
        text_by_name = {
            field.name: format_text(field, initial_params[field.name])
            for field in self.network_fields
            if field.name in initial_params
        }
        super().__init__(FormTexts(text_by_name), {}, id)

    def compose(self) -> ComposeResult:
        yield Static("Network", classes="heading first")
        yield from self.build_field_rows(self.network_fields)
        yield Static("Measurement", classes="heading")
        yield from self.build_field_rows(self.measurement_fields)
        yield Static("Profile", classes="heading")
        for row in self.build_field_rows([_FILE_FIELD]):
            row.add_class("file")
            yield row


def _list_fields(names: Iterable[str]) -> list[Field]:
    """Return the fields of parameters, which take one value."""
    field_by_name = {field.name: field for field in list_param_fields(BENCHMARKS[BENCHMARK])}
    return [replace(field_by_name[name], path=("params", name)) for name in names]


@dataclass(frozen=True, slots=True)
class MeasurementForecast:
    """The measurement of a profile before it starts.

    Attributes:
        params: All parameters.
        default_texts: The values of empty fields.
        duration: The estimate; empty if it is unknown.
    """

    params: Mapping[str, Any]
    default_texts: Mapping[str, str]
    duration: str


def forecast_measurement(request: ProfileRequest, context: ConsoleContext) -> MeasurementForecast:
    """Return the effect of a measurement; call it in a thread, since it reads files.

    Raises:
        SpbenchError: A parameter is invalid.
    """
    # Imported here, since the engine takes 0.1 s.
    from spbench.engine.estimate import estimate_plan
    from spbench.engine.plan import Request

    options = context.options
    run_request = Request(Path(request.output), options.home, options.environ)
    run_plan = plan_measurement(request, run_request)
    params = run_plan.suite.cases[0].params
    return MeasurementForecast(
        params,
        format_default_texts(BENCHMARKS[BENCHMARK], params),
        estimate_plan(run_plan, options.home, consider_load=False).short_text,
    )


_OPTIONS = re.compile(r" \(with --set [^)]*\)")
"""The options that an error names, which a user of the form does not type."""


class ProfileForm(FieldForm[ProfileRequest]):
    """A form that returns the profile to measure, or None if it is left.

    Args:
        kind: The kind of network, a name of `MODELS`.
        context: The state that the pages share.
    """

    HELP = """\
A profile is the measured times of a network's layers, from which plans are made. An empty field has
the default that it shows. A deeper network and larger images take longer; the form shows for how
long. Each value is checked as you type. Several batch sizes show how the times grow with the batch.
Ctrl+S and F5 measure, and Escape leaves the form."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            *("f5", "write", "Measure"),
            id="profile.measure",
            tooltip="Measure the profile",
            show=False,
            priority=True,
        )
    ]

    def __init__(self, kind: str, context: ConsoleContext) -> None:
        super().__init__(f"Measure a profile of {kind}", "Measure")
        self._kind = kind
        self._shared = context
        self._initial_params = BENCHMARKS[BENCHMARK].starting_params

    def build_rows(self) -> ProfileRows:
        """Return the list of the fields of the profile."""
        return ProfileRows(MODELS[self._kind], self._initial_params, id="fields")

    def compose_outcome(self) -> ComposeResult:
        """Yield the command that measures the same."""
        yield Static("The same as a command:", classes="heading first")
        yield Static("", id="command", markup=False)

    async def show_outcome(self) -> ProfileRequest | None:
        """Show the command and the duration, and return the profile to measure."""
        reader = TextReader(FormTexts({}), self.texts)
        rows = self.query_one(ProfileRows)
        params = reader.read_fields([*rows.network_fields, *rows.measurement_fields], "", {})
        model = params.pop(_MODEL, "") if self._kind == OWN_MODEL else self._kind
        if not model:
            reader.errors[_MODEL] = "name your network as module:callable"
        rows.show_errors(reader.errors)
        if reader.errors:
            self._reject(reader.errors.values())
            return None
        request = ProfileRequest(model, params, reader.text(_FILE.name) or _name_file(model, {}))
        try:
            forecast = await asyncio.to_thread(forecast_measurement, request, self._shared)
        except SpbenchError as error:
            self._reject([_OPTIONS.sub("", str(error))])
            return None
        output = _name_file(model, forecast.params)
        rows.show_defaults({**forecast.default_texts, _FILE.name: output})
        request = replace(request, output=reader.text(_FILE.name) or output)
        self.query_one("#command", Static).update(shlex.join(("spbench", *request.arguments)))
        self.show_message(
            f"Ctrl+S or F5 measures it, {forecast.duration or 'for an unknown time'}."
        )
        return request

    def _reject(self, problems: Iterable[str]) -> None:
        """Show errors, without the command of the values before."""
        self.query_one("#command", Static).update("")
        self.show_problems(problems)


def _name_file(model: str, params: Mapping[str, Any]) -> str:
    """Return the file of a profile, which has the size of the network in its name."""
    kind = MODELS.get(model)
    size = params.get(kind.size_param) if kind is not None else None
    name = model if size is None else f"{model}-{size}"
    return f"{PROFILE_FOLDER}/{make_suite_word(name)}.json"
