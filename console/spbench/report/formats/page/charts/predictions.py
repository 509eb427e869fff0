"""Predicted against measured: on the diagonal a prediction is right."""

from __future__ import annotations

from collections.abc import Sequence

from spbench.record.number_formatting import format_time
from spbench.report.formats.page.charts.frame import Frame
from spbench.report.formats.page.markup import Markup, tag
from spbench.report.predictions import PredictedTime
from spbench.report.scale import Scale


def prediction_plot(found: Sequence[PredictedTime]) -> Markup:
    """Return the predictions, which are not empty, on equal logarithmic axes."""
    values = [value for one in found for value in (one.predicted_ms, one.measured_ms)]
    scale = Scale(min(values) / 1.5, max(values) * 1.5, log=True)
    frame = Frame(scale, scale, width=420.0, height=360.0)
    corners = {"x1": frame.at_x(scale.low), "y1": frame.at_y(scale.low)}
    corners |= {"x2": frame.at_x(scale.high), "y2": frame.at_y(scale.high)}
    return frame.drawing(
        "Predicted against measured times",
        frame.y_axis("measured ms"),
        frame.x_axis("predicted ms"),
        tag("line", **corners, class_="limit"),
        *(_dot(frame, one) for one in found),
    )


def _dot(frame: Frame, one: PredictedTime) -> Markup:
    predicted = format_time(one.predicted_ms)
    measured = format_time(one.measured_ms)
    times = f"predicted {predicted}, measured {measured}"
    words = f"{one.case}: {times}"
    place = {"cx": frame.at_x(one.predicted_ms), "cy": frame.at_y(one.measured_ms)}
    return tag("circle", tag("title", words), **place, r=3.5, class_="dot s0")
