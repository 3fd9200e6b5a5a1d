"""Order and labels of the tasks, for plots and reports."""
