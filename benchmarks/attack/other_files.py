"""What is no model file at all: pickles with a canary, archives, bombs, headers of NumPy that lie."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
import zlib
from functools import partial
from pathlib import Path

import numpy as np
import safetensors.numpy

from .parts import Parts, Rng, flip_bits


class Canary:
    """Unpickled, it leaves a mark."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self) -> tuple:
        return partial(open, mode="w"), (str(self.mark),)


def bomb(n_megabytes: int = 64) -> bytes:
    """A small archive that unpacks to a thousand times its size."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive_:
        archive_.writestr("model", b"\0" * (n_megabytes << 20))
    return out.getvalue()


def npy(header: str) -> bytes:
    text = header.encode() + b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


class Others:
    """What people and attackers might give in place of a model file; every pickle among them carries the canary."""

    def __init__(self, mark: Path):
        canary = pickle.dumps(Canary(mark))
        objects = io.BytesIO()
        np.savez(objects, model=np.array([Canary(mark)], dtype=object))
        two = io.BytesIO()
        with zipfile.ZipFile(two, "w") as archive_:
            archive_.writestr("../../outside", canary)
            archive_.writestr("model.pkl", canary)
        self.files = [
            canary,
            pickle.dumps(Canary(mark), protocol=0),
            pickle.dumps(Canary(mark), protocol=2),
            zlib.compress(canary),
            objects.getvalue(),
            two.getvalue(),
            bomb(),
            npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}") + canary,
            npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,)}"),
            npy(f"{{'descr': '<f8', 'fortran_order': False, 'shape': (__import__('os').system('touch {mark}'),)}}"),
            b"",
            b"\0" * 4096,
            b"\xff" * 4096,
            b"{}",
            b"<!DOCTYPE html><title>404</title>",
            b"a,b\n1,2\n",
            b"\x1f\x8b\x08\x00" + b"\0" * 50,
            b"PAR1" + b"\0" * 50 + b"PAR1",
            safetensors.numpy.save({"a": np.zeros(3)}),
        ]

    def draw(self, data: bytes, rng: Rng) -> bytes:
        """One of them: as it is, damaged, or inside the frame of a model file."""
        other = self.files[int(rng.integers(len(self.files)))]
        match int(rng.integers(4)):
            case 0:
                return other
            case 1:
                return flip_bits(other, rng) if other else rng.bytes(50)
            case 2:
                return struct.pack("<Q", len(other)) + other + data[8:]
            case _:
                parts = Parts(data)
                parts.arrays["0"] = np.frombuffer(other[:4000], dtype=np.uint8)
                return parts.signed()
