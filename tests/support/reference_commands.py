"""Reference scripts' commands with those of spbench, from docs/references.md."""

import re

from support.paths import DOCS

_ROW = re.compile(r"^\| (\d+) \| `(\S+) (.*)` \| `(\w+) (.*)` \|$", re.MULTILINE)
REFERENCE_COMMANDS = [
    (int(ranks), file, script_arguments, alias, arguments)
    for ranks, file, script_arguments, alias, arguments in _ROW.findall(
        (DOCS / "references.md").read_text()
    )
]
