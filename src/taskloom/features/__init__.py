"""Kernels as finite features: ``Phi`` with ``K = Phi Phi'``, exactly, or approximately with few columns."""

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
