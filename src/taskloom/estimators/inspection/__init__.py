"""Reading a fitted model: relations between tasks, contributions, bootstrap, comparison with single-task models."""
