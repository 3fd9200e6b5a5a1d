"""The kernels among the candidates of a search: ``kernels=["linear", ("rbf", ["median", 0.1]), Matern()]``."""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from ...features.kernel_width import WIDTHS


@dataclass(frozen=True, eq=False)
class KernelCandidate:
    """A kernel and its ``gamma``."""

    kernel: Any
    gamma: Any = None
    options: dict[str, Any] = field(default_factory=dict)  # more parameters of the plain estimator
    text: str = ""

    @property
    def parameters(self) -> dict[str, Any]:
        """Of the plain estimator."""
        return {"kernel": self.kernel, "gamma": self.gamma} | self.options

    def __str__(self) -> str:
        if self.text:
            return self.text
        width = (
            "" if self.gamma is None else f" with gamma = {self.gamma if isinstance(self.gamma, str) else f'{self.gamma:.3g}'}"
        )
        return f"{self.kernel if isinstance(self.kernel, str) else repr(self.kernel)} kernel{width}"


def kernel_candidates(kernels: Any, gamma: Any) -> list[KernelCandidate]:
    """One for each kernel and each of its widths; kernels by name without a width of their own have ``gamma``."""
    if isinstance(kernels, str) or callable(kernels) or not hasattr(kernels, "__iter__"):
        raise ValueError(f'kernels= takes several, such as ["linear", "rbf"]; for one, give kernel={kernels!r}')
    found: list[KernelCandidate] = []
    for each in kernels:
        if not isinstance(each, tuple):
            if not (isinstance(each, str) or callable(each)):
                raise ValueError(f'kernels= takes names, ("rbf", gammas) and functions k(X, Z), got {each!r}')
            found.append(KernelCandidate(each, gamma if isinstance(each, str) and each != "linear" else None))
            continue
        if not (len(each) == 2 and isinstance(each[0], str)):
            raise ValueError(f'a kernel with widths is ("rbf", [0.01, 0.1, "median"]), got {each!r}')
        name, widths = each
        for width in [widths] if isinstance(widths, (str, Real)) else widths:
            if not (width in WIDTHS if isinstance(width, str) else isinstance(width, Real) and float(width) >= 0):
                raise ValueError(f"gamma of the {name} kernel must be a number, at least 0, or one of {WIDTHS}, got {width!r}")
            found.append(KernelCandidate(name, width))
    if not found:
        raise ValueError("kernels is empty: give at least one candidate")
    if any(isinstance(each.kernel, str) and each.kernel == "precomputed" for each in found):
        raise ValueError('kernels= compares functions of X; kernel="precomputed" is one matrix: give it alone')
    return found
