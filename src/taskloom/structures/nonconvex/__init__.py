"""Structures whose penalty, or whose set, is not convex: a fit finds a stationary point."""
