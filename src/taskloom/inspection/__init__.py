"""Reading what was learned: an order of the tasks, and their labels as text."""
