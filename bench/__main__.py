"""``python -m bench [name ...]``: run measurements, print tables, write ``bench/results/<name>.json``."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from pathlib import Path

import click
from rich.console import Console

import bench

RESULTS = Path(__file__).parent / "results"
NAMES = [module.name for module in pkgutil.iter_modules(bench.__path__) if not module.name.startswith("_")]


@click.command(help="Measure. Without names, everything there is.")
@click.argument("names", nargs=-1, type=click.Choice(NAMES))
def main(names: tuple[str, ...]) -> None:
    console = Console()
    for name in names or NAMES:
        with console.status(f"measuring: {name}"):
            result = import_module(f"bench.{name}").run()
        console.print(result.table())
        for figure, value in result.figures.items():
            console.print(f"{figure}: {value:,.2f}")
        result.write(RESULTS / f"{name}.json")


main()
