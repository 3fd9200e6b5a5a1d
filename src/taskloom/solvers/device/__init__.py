"""Fits that stay on an accelerator: the squared loss under trace, Frobenius or no structure, for three shapes of data.

Written with ``xp``, so that the same lines run on NumPy, PyTorch and CuPy. Data arrive as arrays on their device and only small
matrices leave it until the end. Iterations run in the precision of the data, certificates always in double precision.
"""

from .device_loop import Outcome, refusal, solve_on_device
from .eigenbasis_inputs import EigenbasisInputs
from .kernel_inputs import KernelInputs, accelerated_kernel, is_definite
from .own_inputs import OwnInputs

__all__ = [
    "EigenbasisInputs",
    "KernelInputs",
    "Outcome",
    "OwnInputs",
    "accelerated_kernel",
    "is_definite",
    "refusal",
    "solve_on_device",
]
