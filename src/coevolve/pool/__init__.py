"""The task pool D_t, its samplers and its listings."""

from coevolve.pool.history import SignalRecord
from coevolve.pool.pool import Judgement, Pool
from coevolve.pool.samplers import Retire, Sampler, Uniform, build

__all__ = ["Judgement", "Pool", "Retire", "Sampler", "SignalRecord", "Uniform", "build"]
