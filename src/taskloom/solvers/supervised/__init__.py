"""The supervised step: the best weights for a given structure."""

from ...design.table_with_gaps import TableWithGaps
from ...losses import RowLoss
from ...problem import Problem
from .sides import FeatureSide, Side, TaskSide
from .term_sum_side import TermSumSide

MIN_FEATURES_FOR_TASK_SIDE = 40  # with fewer features, the systems of single tasks are small


def choose_side(problem: Problem) -> Side:
    """The feature side decouples the tasks; the task side is smaller where there are far fewer tasks than features.

    Where one small system holds all tasks, the task side also converges in fewer steps; where tasks share most of many rows,
    products with all of these are cheaper than a system for each task.
    """
    if problem.structure.is_sum:
        return TermSumSide(problem)
    if problem.structure.on_features:
        return FeatureSide(problem)
    if not problem.structure.either_side:
        return TaskSide(problem)
    if isinstance(problem.loss, RowLoss):  # nothing decouples: the smaller structure is the better one
        return TaskSide(problem) if problem.n_tasks <= problem.n_features else FeatureSide(problem)
    many = max(MIN_FEATURES_FOR_TASK_SIDE, problem.n_tasks / 4) <= problem.n_features
    if many and problem.loss.quadratic and TableWithGaps.filled(problem.design):
        return TaskSide(problem)
    small = problem.n_tasks < problem.n_features and (
        problem.observations.y.size <= 300 or problem.targets.shared_inputs is not None
    )
    return TaskSide(problem) if small or 3 * problem.n_tasks <= problem.n_features else FeatureSide(problem)
