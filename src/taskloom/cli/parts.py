"""What stands beside the own parts of the tasks: a common part (``--common``) and other groupings (``--by``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click
import numpy as np

from ..estimators.terms.term import Term
from ..structures import Structure
from .output import Output
from .structure_names import parse
from .table_roles import TableRoles

BY_DEFAULT = {"plain": ("trace", "shared_mean"), "common": ("trace", "independent"), "terms": ("trace",)}


@dataclass(frozen=True, eq=False)
class Parts:
    """The candidate structures of the own parts, and what stands beside these.

    ``common`` is ``None``, ``True`` (the kernel of the own parts) or a kernel; with groupings ``by`` there is a common part in
    any case.
    """

    structures: list[Structure]
    common: Any = None
    by: tuple[str, ...] = ()
    task: str | None = None

    @classmethod
    def of(cls, structure: tuple[str, ...] | None, common: Any, by: tuple[str, ...], given: dict[str, Any]) -> Parts:
        """From the options; raises for those that do not go together."""
        flags = "--by" if by else "--common"
        if (by or common) and given["fallback"]:
            raise click.UsageError(f"--fallback does not go with {flags}: tasks share a part there. Leave one of them out.")
        if by and given["gamma"] is not None:
            raise click.UsageError("--gamma does not go with --by yet; leave it out for the default of the kernel.")
        if structure is not None and by:
            if given["task"] is None:
                raise click.UsageError("--structure relates the tasks; with --by and no --task there are none. Leave it out.")
            if len(structure) > 1:
                raise click.UsageError(
                    f"With --by give one --structure for the own parts of the tasks, not {', '.join(structure)}."
                )
        names = structure or BY_DEFAULT["terms" if by else "common" if common else "plain"]
        return cls([parse(name) for name in names], common, by, given["task"])

    @property
    def plain(self) -> bool:
        """Whether there are own parts only."""
        return not (self.common or self.by)

    def check_table(self, output: Output, data: TableRoles) -> None:
        """Raise for a table that cannot have a common part; say what it means for columns in different units."""
        if not self.common:
            return
        if data.layout == "classes":
            raise click.UsageError(
                "--common needs tasks, --task COLUMN or --targets A,B,C: the classes of one target have nothing in common."
            )
        if data.layout == "wide" and not data.labelled:
            spread = [float(np.std(data.seen[data.task == t].astype(float))) for t in range(len(data.tasks))]
            output.note(
                "with --common the targets are not standardised (their standard deviations are from "
                f"{min(spread):.3g} to {max(spread):.3g}): where the columns have different units, scale them in the table"
            )

    def parameters(self, kernel: str) -> dict[str, Any]:
        """The parameters of a search that stand for the parts; ``kernel`` is that of the own parts."""
        if self.by:
            return {"terms": self.terms(kernel)}
        return {"structures": self.structures, "common": self.common, "kernel": kernel}

    def terms(self, kernel: str) -> list[Term]:
        """A common part, the own parts of the tasks, and an intercept for each level of each grouping."""
        own = [] if self.task is None else [Term(kernel, by=self.task, structure=self.structures[0], intercept=True)]
        shared = kernel if self.common in (None, True) else self.common
        return [Term(shared), *own, *(Term("constant", by=name) for name in self.by)]
