"""``runherd crds``: prints the custom resource definitions that a cluster needs."""

from __future__ import annotations

import click
import msgspec
import yaml

from runherd.api.constants import GROUP
from runherd.api.crds import crd_json, crd_names

__all__ = ["crds"]


class _Dumper(yaml.CSafeDumper):
    """Writes every object out: half of a definition would be references to the other half."""

    def ignore_aliases(self, data: object) -> bool:
        return True


@click.command()
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--format", "output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
def crds(names: tuple[str, ...], output: str) -> None:
    """Print the custom resource definitions, to be piped into `kubectl apply -f -`.

    NAME is autoscalingrunnersets, autoscalinglisteners, ephemeralrunnersets or ephemeralrunners; without one, all four
    are printed. As yaml they are separate documents, as json a List.
    """
    selected = [crd_json(name) for name in _select(names)]
    if output == "json":
        click.echo(b'{"apiVersion":"v1","kind":"List","items":[' + b",".join(selected) + b"]}")
        return
    documents = [msgspec.json.decode(encoded) for encoded in selected]
    click.echo(yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, explicit_start=True), nl=False)


def _select(names: tuple[str, ...]) -> list[str]:
    """The full names of the definitions that ``names`` mean, all for none; each once, in the order of declaration."""
    known = {name.removesuffix(f".{GROUP}"): name for name in crd_names()}
    plurals = [name.lower().removesuffix(f".{GROUP}") for name in names] or list(known)
    unknown = [name for name in plurals if name not in known]
    if unknown:
        raise click.BadParameter(f"no definition {', '.join(unknown)}: there are {', '.join(known)}.")
    return [name for plural, name in known.items() if plural in plurals]
