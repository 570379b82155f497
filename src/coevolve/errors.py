"""Errors for users: one sentence that names the culprit and the way out.

The command line prints them without a traceback and exits with 2. Everything else that escapes is
a bug and shows its traceback.
"""


class CoEvolveError(Exception):
    """A mistake or an outage that the user can act on."""


class ConfigError(CoEvolveError):
    """A configuration file, key or ``--set`` that cannot be used."""


class UnknownEnvironmentError(CoEvolveError):
    """An environment that is unknown, not installed, or of an unknown layout."""


class InfrastructureError(CoEvolveError):
    """Something outside the agent broke: a worker died, a deadline passed, an endpoint is down.

    A rollout that ends with it is invalid, never failed (invariant 1).
    """


class RunError(CoEvolveError):
    """A run directory that cannot be used: another config, finished, locked, broken."""


class BrokenWorldError(CoEvolveError):
    """The agent drove a world into a state that cannot be compared; the rollout has failed."""


class HeldOutError(CoEvolveError):
    """A world or task of the dev or test split where only train may go (invariant 4)."""


class TrainingError(CoEvolveError):
    """Training cannot go on: a loss that is no number, a step without one usable rollout, no step at all."""


class NotANumberError(TrainingError):
    """The policy's logits are no numbers: nothing that is sampled from them says anything about a task."""
