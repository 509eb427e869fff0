"""Check networks of torchvision over stages, pipelines, replicas and tiles.

    python -m benchmarks.networks --folder FOLDER [--only "resnet18;unet"] [--layouts "lp-2"]

Each network is a case of ``model.network`` with `validate: full`: two and three stages,
interleaved, bidirectional, replicated, over tiles, and over tiles with a stage. Every rank compares
output, loss, all gradients and weights after three steps with the user's module on one process in
float64. A network with a row in the folder is not run again, so that an interrupted command
continues. It needs torchvision. Over a torch without CUDA, the missing operators are defined.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from benchmarks.goals import make_argument_parser
from torch import fx, nn

from spbench_core.layout.tiles import Grid
from spbench_core.models.parts import MapShape
from spbench_parallel.models.imported.model import import_network
from spbench_parallel.models.imported.tile_strategies import list_gathered_operators

NO_AUX = {"aux_logits": False, "init_weights": False}
BARE = {"weights": None, "weights_backbone": None}
NETWORKS: dict[str, dict[str, Any]] = {
    "resnet18": {},
    "resnet50": {},
    "resnext50_32x4d": {},
    "wide_resnet50_2": {},
    "vgg16_bn": {},
    "alexnet": {},
    "googlenet": NO_AUX,
    "inception_v3": NO_AUX,
    "densenet121": {},
    "mobilenet_v2": {},
    "mobilenet_v3_small": {},
    "mobilenet_v3_large": {},
    "efficientnet_b0": {},
    "efficientnet_v2_s": {},
    "squeezenet1_0": {},
    "squeezenet1_1": {},
    "shufflenet_v2_x0_5": {},
    "shufflenet_v2_x1_0": {},
    "mnasnet0_5": {},
    "regnet_x_400mf": {},
    "regnet_y_400mf": {},
    "convnext_tiny": {},
    "fcn_resnet50": BARE,
    "deeplabv3_mobilenet_v3_large": BARE,
    "lraspp_mobilenet_v3_large": BARE,
    "vit_b_16": {"image_size": 96},
    "swin_t": {},
    "maxvit_t": {},
    "fasterrcnn_mobilenet_v3_large_320_fpn": BARE,
}
"""Unchanged networks of torchvision, without auxiliary outputs, and their arguments."""
EXAMPLES: dict[str, dict[str, Any]] = {
    "unet": {},
    "unet-segments": {"segments": True},
    "unet-4-levels": {"levels": 4, "width": 8, "segments": True},
}
"""Variants of the example, and their arguments."""
EXAMPLE = "spbench_parallel.models.imported.example:UNet"
LARGER_SIZES = {"inception_v3": 139, "alexnet": 128, "maxvit_t": 224}
"""Pixels per side of networks with a larger minimum, or with maps too small for three tiles."""
LAYOUTS: dict[str, dict[str, Any]] = {
    "lp-2": {"scheme": "lp", "split_size": 2, "parts": 2},
    "lp-3": {"scheme": "lp", "split_size": 3, "parts": 2},
    "interleaved": {"scheme": "lp", "schedule": "interleaved", "parts": 2},
    "gems": {"scheme": "gems", "split_size": 2},
    "replicas": {"scheme": "lp", "split_size": 1, "replicas": 2, "sync_batchnorm": "replicas"},
    "sp-1x2": {"scheme": "sp", "split_size": 1, "grid": "1x2"},
    "sp-2x2": {"scheme": "sp", "split_size": 1, "grid": "2x2"},
    "sp-3x1": {"scheme": "sp", "split_size": 1, "grid": "3x1"},
    "sp-1x2-lp": {"scheme": "sp", "split_size": 2, "grid": "1x2", "balance": "measured"},
}


MAX_GATHERED_SHARE = 0.05
"""Limit of the share of forward time on gathered maps."""


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    parser = make_argument_parser(__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where rows are kept")
    parser.add_argument("--only", default="", help="names with ; between (default: all)")
    parser.add_argument("--layouts", default="", help="names with ; between (default: all)")
    parser.add_argument("--size", type=int, default=96, help="pixels a side (default: 96)")
    options = parser.parse_args()
    names = options.only.split(";") if options.only else [*NETWORKS, *EXAMPLES]
    layouts = options.layouts.split(";") if options.layouts else list(LAYOUTS)
    print("| network | " + " | ".join([*layouts, "gathered"]) + " |")
    print("| --- |" + " --- |" * (len(layouts) + 1))
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        path = options.folder / f"{name}.json"
        if not path.exists():
            size = LARGER_SIZES.get(name, options.size)
            path.write_text(json.dumps(check_network(name, size, layouts)))
        print(format_row(name, json.loads(path.read_text()), layouts), flush=True)


def check_network(name: str, size: int, layouts: Sequence[str]) -> dict[str, Any]:
    """Run a network in some layouts; return their statuses, or the import error."""
    network = EXAMPLE if name in EXAMPLES else f"benchmarks.torchvision_networks:{name}"
    arguments = (EXAMPLES | NETWORKS)[name]
    params = {"network": network, "network_args": arguments, "image_size": size}
    # Only the comparison counts, so a single step is timed.
    params |= {"validate": "full", "warmup": 0, "iterations": 1, "baseline": False, "batch_size": 4}
    cases = [
        {"name": layout, "benchmark": "model.network", "params": params | LAYOUTS[layout]}
        for layout in layouts
    ]
    suite = {"schema": "spbench.suite/1", "name": name, "cases": cases}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "suite.json"
        report = Path(folder) / "report.json"
        path.write_text(json.dumps(suite))
        command = [sys.executable, "-m", "spbench", "run", str(path), "--headless", "-q"]
        command += ["--home", folder, "--json", str(report)]
        errors = _run_command(command)
        report_content = json.loads(report.read_text()) if report.exists() else {}
        if not report_content.get("cases"):
            return {"why": _find_reason(errors)}
    statuses = {case["id"]: _format_status(case) for case in report_content["cases"]}
    return {"statuses": statuses, "gathered": measure_gathered_share(network, arguments, size)}


def _run_command(command: Sequence[str]) -> str:
    """Run a command, which ends with this process; return its stderr."""
    streams: dict[str, Any] = {
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.PIPE,
        "text": True,
    }
    with subprocess.Popen(command, **streams) as process:
        try:
            _, errors = process.communicate()
            return str(errors)
        except BaseException:
            process.send_signal(signal.SIGINT)  # it ends its ranks, and gives up after a while
            raise


def measure_gathered_share(network: str, arguments: dict[str, Any], size: int) -> dict[str, Any]:
    """Return the operators of 2x2 tiles on gathered maps, and their share of time.

    The share is of the forward time of one process, which runs the same operators on whole maps.
    """
    model = import_network(network, arguments, MapShape(3, size, size), 0)
    nodes = list_gathered_operators(model.network, [Grid(2, 2)])
    interpreter = _TimingInterpreter(model.network.module.eval(), model.network.graph)
    with torch.no_grad():
        for _ in range(3):
            interpreter.run(torch.randn(4, 3, size, size))
    share = sum(interpreter.seconds[node] for node in nodes) / sum(interpreter.seconds.values())
    convolves = any(isinstance(model.network.get_module(node), nn.Conv2d) for node in nodes)
    return {"operators": len(nodes), "share": share, "convolves": convolves}


class _TimingInterpreter(fx.Interpreter):
    """An interpreter that times each operator."""

    def __init__(self, module: nn.Module, graph: fx.Graph) -> None:
        super().__init__(module, graph=graph)
        self.seconds: dict[fx.Node, float] = {}

    def run_node(self, n: fx.Node) -> Any:
        """Run an operator; keep its shortest time."""
        began = perf_counter()
        output = super().run_node(n)
        spent = perf_counter() - began
        self.seconds[n] = min(spent, self.seconds.get(n, spent))
        return output


def _find_reason(errors: str) -> str:
    """Return the reason against a network from the errors of all its cases."""
    lines = [line for line in errors.splitlines() if "error: " in line]
    return lines[0].partition("error: ")[2].rpartition(": network ")[2] if lines else "no report"


def _format_status(case: dict[str, Any]) -> str:
    reason = case.get("reason") or ""
    return str(case["status"]) + (f" ({reason})" if reason else "")


def format_row(name: str, row: dict[str, Any], layouts: Sequence[str]) -> str:
    """Return a row of a Markdown table."""
    if "why" in row:
        return f"| {name} | {row['why']} |" + " |" * len(layouts)
    statuses = [row["statuses"].get(layout, "") for layout in layouts]
    return f"| {name} | " + " | ".join([*statuses, _format_gathered(row["gathered"])]) + " |"


def _format_gathered(gathered: dict[str, Any]) -> str:
    """Return the text for gathered maps, with a "no" if they exceed the limit."""
    if not gathered["operators"]:
        return "nothing"
    exceeds = gathered["convolves"] or gathered["share"] > MAX_GATHERED_SHARE
    text = f"{gathered['operators']} operators, {100 * gathered['share']:.1f} %"
    return f"no: {text}" if exceeds else text


if __name__ == "__main__":
    main()
