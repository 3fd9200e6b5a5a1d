"""The supervised step: the tasks at a fixed structure, on the side of the tasks or of the features."""

from ...design.table_with_gaps import TableWithGaps
from ...losses import RowLoss
from ...problem import Problem
from .sides import FeatureSide, Side, TaskSide, tasks_pay
from .term_stack_side import TermStackSide
from .term_sum_side import TermSumSide


def choose_side(problem: Problem) -> Side:
    """The side on which the structure acts.

    The feature side decouples the tasks. The task side is smaller if there are far fewer tasks than features, and takes fewer
    steps if one small system holds all tasks. If tasks share most of many rows, products with these are cheaper than a system
    for each task.
    """
    if problem.structure.is_stack:
        return TermStackSide(problem)
    if problem.structure.is_sum:
        return TermSumSide(problem)
    if problem.structure.on_features:
        return FeatureSide(problem)
    if not problem.structure.either_side:
        return TaskSide(problem)
    if isinstance(problem.loss, RowLoss):  # tasks never decouple: choose the smaller structure
        return TaskSide(problem) if problem.n_tasks <= problem.n_features else FeatureSide(problem)
    if problem.structure.known and tasks_pay(problem):  # the tasks do not couple
        return TaskSide(problem)
    many = max(Side.tuning.min_features_for_tasks, problem.n_tasks / 4) <= problem.n_features
    if many and problem.loss.quadratic and TableWithGaps.filled(problem.design):
        return TaskSide(problem)
    one_system = problem.observations.y.size <= 300 or problem.targets.shared_inputs is not None
    small = problem.n_tasks < problem.n_features and one_system
    return TaskSide(problem) if small or 3 * problem.n_tasks <= problem.n_features else FeatureSide(problem)
