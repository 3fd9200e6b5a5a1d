"""The candidates of a search with one kernel, scored on the folds of all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from .kernel_candidates import KernelCandidate
from .plain_models import PlainModels
from .results import Candidate
from .splitters import Split
from .sum_models import SumModels


@dataclass(frozen=True, eq=False)
class ModelsOfKernel:
    """Models without a common part, and sums of terms; either may be missing."""

    kernel: KernelCandidate
    plain: PlainModels | None
    sums: SumModels | None
    why_no_sum: str = ""

    @property
    def candidates(self) -> list[Candidate]:
        return [each for models in (self.plain, self.sums) if models for each in models.candidates]

    @property
    def folds(self) -> list[Split] | None:
        return next((models.cv_data.folds for models in (self.plain, self.sums) if models is not None), None)

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C came when settings were complete on all folds."""
        return any(models is not None and models.interrupted for models in (self.plain, self.sums))

    def finished(self, n_folds: int) -> ModelsOfKernel:
        """With the candidates that were tried on as many folds."""

        def kept(models: Any) -> Any:
            return models and replace(models, candidates=[each for each in models.candidates if len(each.folds) == n_folds])

        return replace(self, plain=kept(self.plain), sums=kept(self.sums))

    def cross_validate(
        self, folds: list[Split] | None, report: Callable[[int, int, float], None], after_setting: Callable[[], Any]
    ) -> tuple[int, int]:
        """Score all candidates; returns the number of complete folds, and of all folds."""
        plain, sums, done = self.plain, self.sums, (0, 0)
        if plain is not None:
            plain.cv_data.folds = folds
        if sums is not None:
            sums.cv_data.folds = folds
            folds = sums.make_folds()
            done = (len(folds), len(folds))
            if plain is not None:
                plain.cv_data.folds, plain.cv_data.explained = folds, sums.cv_data.explained
        if plain is not None:
            done = plain.cross_validate(report)
        if sums is not None and done[0] == done[1] and not self.interrupted:
            sums.search(after_setting)
        return done
