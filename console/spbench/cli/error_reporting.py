"""Exit codes of commands, and errors as one line each on stderr.

This module does not import the library that parses command lines, which takes longer to load
than a short command takes to run.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable
from contextlib import suppress

from spbench.errors import ExitCode, SpbenchError
from spbench_core import plugins

ENV_COMPLETE = "_SPBENCH_COMPLETE"
"""Set by a shell's completion script, which asks for completions."""


def run_reporting_errors(command: Callable[[], int]) -> int:
    """Run a command and return its exit code; print an error as one line on stderr."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal may lack the glyphs
            stream.reconfigure(errors="replace")
    if ENV_COMPLETE not in os.environ:
        plugins.set_warning_listener(lambda text: print_to_stderr(f"spbench: warning: {text}"))
    try:
        return command()
    except SpbenchError as error:
        # Errors of a file already begin with its name.
        print_to_stderr(str(error) if hasattr(error, "diagnostics") else f"spbench: error: {error}")
        return error.exit_code
    except plugins.PluginError as error:
        print_to_stderr(f"spbench: error: {error}")
        return ExitCode.ERROR
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        print_to_stderr(f"spbench: error: cannot write the output: {error.strerror}")
        return ExitCode.ERROR


def print_to_stderr(text: str) -> None:
    """Write a line to stderr, unless its reader is gone."""
    from spbench.record.number_formatting import replace_line_controls

    with suppress(BrokenPipeError):
        sys.stderr.write(replace_line_controls(text) + "\n")
