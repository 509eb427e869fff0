"""Examples at the end of help pages: comments and command lines by command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

EXAMPLES: Mapping[str, Sequence[tuple[str, str]]] = {
    "": (
        ("Write the shipped suites and hostfiles into this folder", "spbench init"),
        ("Run a suite on this machine", "spbench run suites/halo.yaml"),
        ("Compose suites, watch runs and compare results on screens", "spbench tui"),
    ),
    "run": (
        ("Run the cases with `small` in their names", "spbench run suites/halo.yaml -k small"),
        (
            "Run on the hosts of a hostfile, and write reports for a CI server",
            "spbench run suites/halo.yaml --hostfile hosts --junit halo.xml",
        ),
        (
            "Launch cases six times, and exit with 1 if one is worse than a baseline",
            "spbench run suites/halo.yaml --set repeat=6 --baseline main",
        ),
        ("Show the launch commands without running them", "spbench run suites/halo.yaml --dry-run"),
    ),
    "scale": (
        (
            "Divide the same work among 1, 2 and 4 ranks",
            "spbench scale suites/scaling.yaml --np 1,2,4 --strong",
        ),
        (
            "Give each rank the same work, with one more rank each time",
            "spbench scale suites/scaling.yaml --np 1,2,3 --weak",
        ),
    ),
    "submit": (
        (
            "Submit a suite to Slurm, and make a run of its results later",
            "spbench submit suites/smoke.yaml --scheduler slurm --output job",
        ),
        ("After the job has ended", "spbench collect job"),
    ),
    "compare": (
        ("Compare the last two runs", "spbench compare last~1 last"),
        (
            "Compare a run with a baseline, and exit with 1 if a case is worse",
            "spbench compare main last --fail-on worse",
        ),
        (
            "Show the slower cases as Markdown",
            "spbench compare last~1 last --only worse --format md",
        ),
    ),
    "baseline set": (
        ("Launch each case six times", "spbench run suites/halo.yaml --set repeat=6"),
        ("Make a baseline of that run", "spbench baseline set main last"),
    ),
    "report": (
        ("Write a web page of the last run", "spbench report --format html --output run.html"),
        (
            "Write JUnit XML that fails if a case is worse than a baseline",
            "spbench report --format junit --baseline main -o run.xml",
        ),
    ),
    "doctor": (
        ("Check this machine", "spbench doctor"),
        ("Check eight hosts", "spbench doctor --hosts 'node[01-08]'"),
        ("Check the hosts of a hostfile, for a script", "spbench doctor --hostfile hosts --json"),
    ),
    "profile": (
        (
            "Measure your own model at two batch sizes",
            "spbench profile nets:UNet --batch-sizes 2,4 --output unet.json",
        ),
    ),
    "plan": (
        (
            "Plan a profile of spbench profile for four machines with eight devices",
            "spbench plan unet.json --global-batch-size 64 --machines 4x8",
        ),
        (
            "Try the batch sizes 64, 128, ..., 512",
            "spbench plan unet.json --global-batch-size 64:512:64 --machines 2x8",
        ),
        (
            "Run the plan on this machine, and compare predicted with measured times",
            "spbench plan unet.json --global-batch-size 8 --machines 1x2 --verify",
        ),
    ),
    "tui": (
        ("Open the screens", "spbench tui"),
        ("Edit and run a suite", "spbench tui suites/halo.yaml"),
        ("Look at a recorded run", "spbench tui --demo"),
    ),
    "results": (
        ("List the newest ten runs", "spbench results list -n 10"),
        ("List the failed runs of a suite", "spbench results list suite:halo status:failed"),
        ("Show the last run with the output of its jobs", "spbench results show last --logs"),
        ("Write all samples of a run to a file", "spbench results export last -o run.csv"),
    ),
    "results list": (
        ("List the newest ten runs", "spbench results list -n 10"),
        ("List the failed runs of a suite", "spbench results list suite:halo status:failed"),
    ),
    "baseline": (
        ("Make a baseline of the last run", "spbench baseline set main"),
        ("Compare a new run with it", "spbench run suites/halo.yaml --baseline main"),
        ("Accept faster results of the last run", "spbench baseline update main last"),
    ),
    "gate": (
        (
            "Exit with 1 if compare would miss a case that is 20 % slower",
            "spbench gate check last --must-find 20",
        ),
        (
            "Fail a run that is slower than a baseline: an option of run, not of gate",
            "spbench run suites/halo.yaml --set repeat=6 --baseline main",
        ),
    ),
    "completion": (
        ("Install completion for the shell that you use", "spbench completion --install"),
        ("Print the script for zsh", "spbench completion zsh"),
    ),
}
"""Examples by command; the key of `spbench` itself is empty."""
