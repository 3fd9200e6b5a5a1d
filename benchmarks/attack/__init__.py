"""The campaign against our own library: draw a problem, fit it through the front door, judge the answer by other means."""
