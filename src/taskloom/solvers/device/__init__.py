"""Fits on an accelerator: the squared loss under trace, Frobenius or no structure, for three layouts of the data.

The code is written for NumPy, PyTorch and CuPy. Data stay on their device; only small matrices leave it before the end.
Iterations run in the precision of the data, certificates in double precision.
"""

from .eigenbasis_inputs import EigenbasisInputs
from .kernel_inputs import KernelInputs, accelerated_kernel, is_definite
from .own_inputs import OwnInputs
from .task_rows import TaskRows

__all__ = ["EigenbasisInputs", "KernelInputs", "OwnInputs", "TaskRows", "accelerated_kernel", "is_definite"]
