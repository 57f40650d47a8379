"""``python -m tests.controlplane build``: have everything ready before the tests run."""

import argparse
import os
import sys

from tests.controlplane.programs import BuildError, ProgramsUnavailableError, find_programs
from tests.controlplane.tools import FetchError, ToolsUnavailableError, find_tools


def main(arguments: list[str] | None = None) -> int:
    """Build the control plane and fetch kubectl and helm into the user's cache.

    Returns 0, also where this machine can have none of them (the tests say so
    again when they skip), unless ``CI`` is ``true``: then that is a failure.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.controlplane", description="The control plane of the tests.")
    parser.add_argument("verb", choices=["build"], help="build the control plane, fetch kubectl and helm")
    parser.parse_args(arguments)
    status = 0
    for find in (find_programs, find_tools):
        try:
            find(_report)
        except (ProgramsUnavailableError, ToolsUnavailableError) as error:
            _report(f"WARNING: {error}")
            status |= os.environ.get("CI") == "true"
        except (BuildError, FetchError) as error:
            _report(f"ERROR: {error}")
            status = 1
    return status


def _report(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
