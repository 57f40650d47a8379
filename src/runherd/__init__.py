"""Ephemeral GitHub Actions runners at scale: a Kubernetes operator, and the same controllers on one machine."""

__all__ = ["__version__"]

__version__: str


def __getattr__(name: str) -> str:
    # Reading package metadata costs tens of milliseconds, which the runner program must not pay at every start.
    if name == "__version__":
        from importlib.metadata import version

        return version("runherd")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
