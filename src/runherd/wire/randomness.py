"""Randomness, injected: everything random in this project is drawn from one ``random.Random`` that is handed down.

Production passes ``random.SystemRandom()``; tests and simulations pass ``random.Random(seed)``.
"""

from __future__ import annotations

from random import Random
from uuid import UUID

__all__ = ["jittered", "name_suffix", "uuid4"]

# Kubernetes leaves out vowels and look-alikes so that no generated name spells or resembles a word.
_NAME_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


def name_suffix(random: Random, length: int = 5) -> str:
    """A suffix as Kubernetes appends it to ``generateName``: ``length`` characters of its own alphabet."""
    return "".join(random.choices(_NAME_ALPHABET, k=length))


def jittered(random: Random, seconds: float, factor: float) -> float:
    """``seconds`` plus up to ``factor`` times as much again, evenly spread (client-go's ``wait.Jitter``)."""
    return seconds * (1.0 + factor * random.random())


def uuid4(random: Random) -> UUID:
    """A random UUID (version 4) drawn from ``random``."""
    return UUID(int=random.getrandbits(128), version=4)
