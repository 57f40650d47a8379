"""Ephemeral GitHub Actions runners at scale: a Kubernetes operator, and the same controllers on one machine."""

from importlib.metadata import version

__version__ = version("runherd")
