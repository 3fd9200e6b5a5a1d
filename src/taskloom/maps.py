"""The old name of :mod:`taskloom.equivalences`."""

from .equivalences import *  # noqa: F403
from .equivalences import __all__ as __all__
