"""Check networks of torchvision over stages, mirrored pipelines, replicas and tiles.

    python -m benchmarks.networks --folder FOLDER [--only resnet18,unet] [--size 96]

Each network is run as a case of ``model.network`` with `validate: full`: two and three stages,
interleaved, mirrored, replicated, over tiles, and over tiles with a stage. Every rank compares
output, loss, all gradients and weights after three steps with the user's module on one process in
float64. A network whose row stands in the folder is not run again, so that the command goes on
where it was cut short. It needs torchvision; over a torch without CUDA the operators that it asks
for are defined.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.goals import argument_parser

OFF = {"dropout": 0}
NETWORKS: dict[str, dict[str, Any]] = {
    "resnet18": {},
    "resnet50": {},
    "resnext50_32x4d": {},
    "wide_resnet50_2": {},
    "vgg16_bn": OFF,
    "alexnet": OFF,
    "googlenet": OFF | {"aux_logits": False, "init_weights": False},
    "inception_v3": OFF | {"aux_logits": False, "init_weights": False},
    "densenet121": {},
    "mobilenet_v2": OFF,
    "mobilenet_v3_small": OFF,
    "mobilenet_v3_large": OFF,
    "efficientnet_b0": OFF | {"stochastic_depth_prob": 0},
    "efficientnet_v2_s": OFF | {"stochastic_depth_prob": 0},
    "squeezenet1_0": OFF,
    "squeezenet1_1": OFF,
    "shufflenet_v2_x1_0": {},
    "mnasnet0_5": OFF,
    "regnet_x_400mf": {},
    "regnet_y_400mf": {},
    "convnext_tiny": {"stochastic_depth_prob": 0},
    "vit_b_16": {},
    "swin_t": {},
    "maxvit_t": {},
}
"""Networks of torchvision, and what they are given: nothing that draws random numbers."""
OURS = {"unet": "spbench_workers.models.imported.example:UNet"}
LARGER = {"inception_v3": 139, "maxvit_t": 224}
"""Pixels a side of those that take no smaller image."""
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


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where rows are kept")
    parser.add_argument("--only", default="", help="names with commas between (default: all)")
    parser.add_argument("--size", type=int, default=96, help="pixels a side (default: 96)")
    words = parser.parse_args()
    asked = words.only.split(",") if words.only else [*NETWORKS, *OURS]
    words.folder.mkdir(parents=True, exist_ok=True)
    for name in asked:
        kept = words.folder / f"{name}.json"
        if not kept.exists():
            kept.write_text(json.dumps(row_of(name, LARGER.get(name, words.size))))
        print(line(name, json.loads(kept.read_text())), flush=True)


def row_of(name: str, size: int) -> dict[str, Any]:
    """Run a network in all layouts; return each one's status, or why it cannot be imported."""
    network = OURS.get(name, f"benchmarks.torchvision_networks:{name}")
    given = {"network": network, "network_args": NETWORKS.get(name, {}), "image_size": size}
    # What is compared is all that counts: nothing is timed but one step.
    given |= {"validate": "full", "warmup": 0, "iterations": 1, "baseline": False, "batch_size": 4}
    cases = [
        {"name": layout, "benchmark": "model.network", "params": given | params}
        for layout, params in LAYOUTS.items()
    ]
    suite = {"schema": "spbench.suite/1", "name": name, "cases": cases}
    with tempfile.TemporaryDirectory() as folder:
        path, report = Path(folder) / "suite.json", Path(folder) / "report.json"
        path.write_text(json.dumps(suite))
        command = [sys.executable, "-m", "spbench", "run", str(path), "--headless", "-q"]
        command += ["--home", folder, "--json", str(report)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        found = json.loads(report.read_text()) if report.exists() else {}
        if not found.get("cases"):
            return {"why": _sentence(ended.stderr)}
    return {"statuses": {case["id"]: _status(case) for case in found["cases"]}}


def _sentence(errors: str) -> str:
    """Return what speaks against a network, of what the command says of all its cases."""
    lines = [line for line in errors.splitlines() if "error: " in line]
    return lines[0].partition("error: ")[2].rpartition(": network ")[2] if lines else "no report"


def _status(case: dict[str, Any]) -> str:
    reason = case.get("reason") or ""
    return str(case["status"]) + (f" ({reason})" if reason else "")


def line(name: str, row: dict[str, Any]) -> str:
    """Return a row of a Markdown table."""
    if "why" in row:
        return f"| {name} | {row['why']} |" + " |" * (len(LAYOUTS) - 1)
    return f"| {name} | " + " | ".join(row["statuses"].get(each, "") for each in LAYOUTS) + " |"


if __name__ == "__main__":
    main()
