"""The ``runherd`` command: a group, with one file in this folder for each of its commands."""

from __future__ import annotations

import click

from runherd import __version__
from runherd.cli.apiserver import apiserver
from runherd.cli.crds import crds
from runherd.cli.simulator import simulator

__all__ = ["main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="runherd")
def main() -> None:
    """Run ephemeral GitHub Actions runners at scale, on Kubernetes or on one machine."""


main.add_command(apiserver)
main.add_command(crds)
main.add_command(simulator)
