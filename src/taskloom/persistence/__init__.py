"""Model files: safetensors with JSON metadata. Nothing in a file can run; only classes on a list are made."""

from .archive import VERSION, read, write
from .atomic import atomic_path, atomic_write, check_apart, check_place
from .decode import Decoder
from .encode import Encoder
from .refusal import ModelFileError

__all__ = [
    "VERSION",
    "Decoder",
    "Encoder",
    "ModelFileError",
    "atomic_path",
    "atomic_write",
    "check_apart",
    "check_place",
    "read",
    "write",
]
