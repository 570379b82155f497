"""BFCL multi-turn: safe dispatch on the benchmark's own back ends."""

from coevolve.environments.bfcl.environment import BfclEnvironment

__all__ = ["BfclEnvironment"]
