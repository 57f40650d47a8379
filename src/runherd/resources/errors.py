"""What a builder raises when its parent can't have the child."""

from __future__ import annotations

__all__ = ["BuildError"]


class BuildError(ValueError):
    """The parent object or the manager's settings make it impossible to build a child.

    The message names the field or setting and the fix. It holds no secret, so it may be shown on the object.
    """
