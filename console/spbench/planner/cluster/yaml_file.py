"""Clusters from YAML, ``spbench.cluster/1``.

::

    schema: spbench.cluster/1
    name: two-racks                     # the file's name if left out
    devices:                            # kinds of devices
      v100: {memory: 16GB, speed: 1.0}  # speed against the device of the profile; 1 if left out
    links:
      nvlink: {bandwidth: 25GB/s, latency: 5us}           # latency 0 if left out
      ethernet: {bandwidth: 1GB/s, all_reduce: 3GB/s}     # all_reduce is bandwidth if left out
      sockets: {bandwidth: 1GB/s, overhead: 80us}         # a message's of each device; 0 likewise
      memory: {bandwidth: 9GB/s, copy_bandwidth: 4GB/s}   # of each device's copies; none likewise
    machines:
      - {name: rack0, devices: {v100: 8}, link: nvlink, count: 2}   # rack0-0 and rack0-1
      - {name: big, devices: {v100: 4, a100: 4}, link: nvlink}
    between: ethernet                   # joins any two machines
    pairs:                              # those with a link of their own
      - {machines: [rack0-0, big], link: nvlink}

Sizes are bytes, bandwidths bytes a second and latencies seconds where they are bare numbers.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from spbench.errors import Diagnostic
from spbench.planner.cluster.machines import Cluster
from spbench.planner.cluster.reader import ClusterFile
from spbench.planner.errors import ClusterError, PlannerError
from spbench.planner.profile.files import read_text
from spbench.suites.findings import Findings
from spbench.suites.wording import report_errors
from spbench.suites.yaml_nodes import YamlError, parse_yaml

MAX_BYTES = 4 << 20


def load_cluster(path: Path) -> Cluster:
    """Return the cluster of a YAML file.

    Raises:
        ClusterError: The file has errors; it holds them all.
        PlannerError: It cannot be read.
    """
    return read_cluster(read_text(path, MAX_BYTES), str(path), path.stem)


def read_cluster(text: str, file: str, name: str) -> Cluster:
    """Return the cluster of a text; ``name`` stands for one that it does not give.

    Raises:
        ClusterError: The text has errors; it holds them all.
    """
    try:
        document = parse_yaml(text)
    except YamlError as error:
        mark = error.mark
        raise ClusterError([Diagnostic(file, mark.line, mark.column, str(error))]) from None
    findings = Findings(file, document)
    data = document.root.data
    try:
        cluster = ClusterFile.read(data).cluster(name)
    except ValidationError as error:
        report_errors(error, data, findings, ClusterFile)
    except PlannerError as error:
        findings.add_at_value((), str(error))
    if findings.count:
        raise ClusterError(findings.diagnostics)
    return cluster
