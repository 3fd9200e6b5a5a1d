"""Finite features of kernels: ``Phi`` with ``K = Phi Phi'``, exact or approximate."""

from .kernels import (
    GROWING,
    PER_TASK,
    KernelFeatures,
    LinearFeatures,
    Matrix,
    PivotedFeatures,
    SumFeatures,
    as_csr,
    build_features,
    decomposed,
    entries,
    kernel_function,
    row_squares,
    to_dense,
    weighted_gram,
)

__all__ = [
    "GROWING",
    "PER_TASK",
    "KernelFeatures",
    "LinearFeatures",
    "Matrix",
    "PivotedFeatures",
    "SumFeatures",
    "as_csr",
    "build_features",
    "decomposed",
    "entries",
    "kernel_function",
    "row_squares",
    "to_dense",
    "weighted_gram",
]
