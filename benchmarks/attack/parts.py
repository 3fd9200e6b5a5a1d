"""A model file taken apart, and put together again as a forger would."""

from __future__ import annotations

import json
import struct
from functools import cache
from typing import Any

import numpy as np
import safetensors.numpy

from taskloom.persistence import archive

Rng = np.random.Generator


@cache
def _taken_apart(data: bytes) -> tuple[str, dict[str, np.ndarray], bytes]:
    """Header, arrays and the rest; the arrays in one order, for the library hands them out in any."""
    length = int.from_bytes(data[:8], "little")
    arrays = dict(sorted(safetensors.numpy.load(data).items()))
    return data[8 : 8 + length].decode(), arrays, data[8 + length :]


class Parts:
    """A model file taken apart, and put together again with a right checksum."""

    def __init__(self, data: bytes):
        text, arrays, self.body = _taken_apart(data)
        self.header = json.loads(text)
        self.metadata = self.header["__metadata__"]
        self.tree = json.loads(self.metadata["model"])
        self.arrays = dict(arrays)

    def with_header(self, header: Any) -> bytes:
        text = (header if isinstance(header, str) else json.dumps(header)).encode("utf-8", "surrogatepass")
        return struct.pack("<Q", len(text)) + text + self.body

    def signed(self, model: str | None = None) -> bytes:
        """As a forger would write it."""
        metadata = {name: text for name, text in self.metadata.items() if name != "sha256"}
        metadata["model"] = json.dumps(self.tree) if model is None else model
        arrays = {name: np.ascontiguousarray(array) for name, array in self.arrays.items()}
        metadata["sha256"] = archive._checksum(metadata, arrays)
        return safetensors.numpy.save(arrays, metadata)


def flip_bits(data: bytes, rng: Rng) -> bytes:
    broken = bytearray(data)
    for place in rng.integers(len(broken), size=int(rng.integers(1, 9))):
        broken[place] ^= 1 << int(rng.integers(8))
    return bytes(broken)
