"""What a measurement found."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table

__all__ = ["Result"]


@dataclass(frozen=True, slots=True)
class Result:
    """One table: each row maps a column's heading (with its unit) to what was measured."""

    title: str
    rows: list[dict[str, str | float]]
    #: How it was measured, and what to read from it.
    notes: str = ""
    #: Single figures that a requirement speaks of, by name.
    figures: dict[str, float] = field(default_factory=dict)

    def table(self) -> Table:
        """The result for people."""
        table = Table(title=self.title, caption=self.notes or None)
        headings = list(dict.fromkeys(heading for row in self.rows for heading in row))
        for heading in headings:
            numeric = any(isinstance(row.get(heading), float | int) for row in self.rows)
            table.add_column(heading, justify="right" if numeric else "left")
        for row in self.rows:
            table.add_row(*(_shown(row.get(heading, "")) for heading in headings))
        return table

    def write(self, path: Path) -> None:
        """The result for programs, with the versions and the machine that it came from."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            json.dumps(
                {
                    "title": self.title,
                    "notes": self.notes,
                    "figures": self.figures,
                    "rows": self.rows,
                    "python": platform.python_version(),
                    "platform": platform.platform(),
                    "cpus": os.cpu_count(),
                },
                indent=2,
            )
            + "\n"
        )


def _shown(value: str | float) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.2f}"
