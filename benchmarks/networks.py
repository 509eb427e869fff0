"""Check networks of torchvision over stages, mirrored pipelines, replicas and tiles.

    python -m benchmarks.networks --folder FOLDER [--only "resnet18;unet"] [--layouts "lp-2"]

Each network is run as a case of ``model.network`` with `validate: full`: two and three stages,
interleaved, mirrored, replicated, over tiles, and over tiles with a stage. Every rank compares
output, loss, all gradients and weights after three steps with the user's module on one process in
float64. A network whose row stands in the folder is not run again, so that the command goes on
where it was cut short. It needs torchvision; over a torch without CUDA the operators that it asks
for are defined.
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
from benchmarks.goals import argument_parser
from torch import fx, nn

from spbench_core.layout.tiles import Grid
from spbench_core.models.parts import Map
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
"""Networks of torchvision as they come, without auxiliary outputs, and what they are given."""
OURS: dict[str, dict[str, Any]] = {
    "unet": {},
    "unet-segments": {"segments": True},
    "unet-4-levels": {"levels": 4, "width": 8, "segments": True},
}
"""The example, and what it is given."""
EXAMPLE = "spbench_parallel.models.imported.example:UNet"
LARGER = {"inception_v3": 139, "alexnet": 128, "maxvit_t": 224}
"""Pixels a side of those whose maps would end as too few for three tiles, or that take no less."""
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


MOST_GATHERED = 0.05
"""The most of forward time that should be spent on gathered maps."""


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    parser = argument_parser(__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where rows are kept")
    parser.add_argument("--only", default="", help="names with ; between (default: all)")
    parser.add_argument("--layouts", default="", help="names with ; between (default: all)")
    parser.add_argument("--size", type=int, default=96, help="pixels a side (default: 96)")
    words = parser.parse_args()
    asked = words.only.split(";") if words.only else [*NETWORKS, *OURS]
    layouts = words.layouts.split(";") if words.layouts else list(LAYOUTS)
    print("| network | " + " | ".join([*layouts, "gathered"]) + " |")
    print("| --- |" + " --- |" * (len(layouts) + 1))
    words.folder.mkdir(parents=True, exist_ok=True)
    for name in asked:
        kept = words.folder / f"{name}.json"
        if not kept.exists():
            kept.write_text(json.dumps(row_of(name, LARGER.get(name, words.size), layouts)))
        print(line(name, json.loads(kept.read_text()), layouts), flush=True)


def row_of(name: str, size: int, layouts: Sequence[str]) -> dict[str, Any]:
    """Run a network in some layouts; return each one's status, or why it cannot be imported."""
    network = EXAMPLE if name in OURS else f"benchmarks.torchvision_networks:{name}"
    arguments = (OURS | NETWORKS)[name]
    given = {"network": network, "network_args": arguments, "image_size": size}
    # What is compared is all that counts: nothing is timed but one step.
    given |= {"validate": "full", "warmup": 0, "iterations": 1, "baseline": False, "batch_size": 4}
    cases = [
        {"name": layout, "benchmark": "model.network", "params": given | LAYOUTS[layout]}
        for layout in layouts
    ]
    suite = {"schema": "spbench.suite/1", "name": name, "cases": cases}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "suite.json"
        report = Path(folder) / "report.json"
        path.write_text(json.dumps(suite))
        command = [sys.executable, "-m", "spbench", "run", str(path), "--headless", "-q"]
        command += ["--home", folder, "--json", str(report)]
        errors = _errors_of(command)
        found = json.loads(report.read_text()) if report.exists() else {}
        if not found.get("cases"):
            return {"why": _sentence(errors)}
    statuses = {case["id"]: _status(case) for case in found["cases"]}
    return {"statuses": statuses, "gathered": gathered_share(network, arguments, size)}


def _errors_of(command: Sequence[str]) -> str:
    """Run a command; return what it says of errors. It ends with this process."""
    words: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **words) as running:
        try:
            _, errors = running.communicate()
            return str(errors)
        except BaseException:
            running.send_signal(signal.SIGINT)  # it ends its ranks, and gives up after a while
            raise


def gathered_share(network: str, arguments: dict[str, Any], size: int) -> dict[str, Any]:
    """Return what 2x2 tiles compute on gathered maps: operators, and their share of forward time.

    The time is that of one process, which runs the same operators on whole maps.
    """
    model = import_network(network, arguments, Map(3, size, size), 0)
    nodes = list_gathered_operators(model.network, [Grid(2, 2)])
    timed = _Timed(model.network.module.eval(), model.network.graph)
    with torch.no_grad():
        for _ in range(3):
            timed.run(torch.randn(4, 3, size, size))
    share = sum(timed.seconds[node] for node in nodes) / sum(timed.seconds.values())
    convolves = any(isinstance(model.network.get_module(node), nn.Conv2d) for node in nodes)
    return {"operators": len(nodes), "share": share, "convolves": convolves}


class _Timed(fx.Interpreter):
    """A run that times each operator."""

    def __init__(self, module: nn.Module, graph: fx.Graph) -> None:
        super().__init__(module, graph=graph)
        self.seconds: dict[fx.Node, float] = {}

    def run_node(self, n: fx.Node) -> Any:
        """Run an operator; keep the least of its times."""
        began = perf_counter()
        made = super().run_node(n)
        spent = perf_counter() - began
        self.seconds[n] = min(spent, self.seconds.get(n, spent))
        return made


def _sentence(errors: str) -> str:
    """Return what speaks against a network, of what the command says of all its cases."""
    lines = [line for line in errors.splitlines() if "error: " in line]
    return lines[0].partition("error: ")[2].rpartition(": network ")[2] if lines else "no report"


def _status(case: dict[str, Any]) -> str:
    reason = case.get("reason") or ""
    return str(case["status"]) + (f" ({reason})" if reason else "")


def line(name: str, row: dict[str, Any], layouts: Sequence[str]) -> str:
    """Return a row of a Markdown table."""
    if "why" in row:
        return f"| {name} | {row['why']} |" + " |" * len(layouts)
    statuses = [row["statuses"].get(each, "") for each in layouts]
    return f"| {name} | " + " | ".join([*statuses, _gathered_words(row["gathered"])]) + " |"


def _gathered_words(found: dict[str, Any]) -> str:
    """Return what is gathered in words, with a no where it is more than it should be."""
    if not found["operators"]:
        return "nothing"
    much = found["convolves"] or found["share"] > MOST_GATHERED
    words = f"{found['operators']} operators, {100 * found['share']:.1f} %"
    return f"no: {words}" if much else words


if __name__ == "__main__":
    main()
