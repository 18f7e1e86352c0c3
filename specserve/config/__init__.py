"""Frozen, complete, resolved once; unknown keys are errors. Only this package reads the environment."""
