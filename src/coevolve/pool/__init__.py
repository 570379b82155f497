"""The task pool D_t, its samplers and its listings."""

from coevolve.pool.history import SignalRecord
from coevolve.pool.pool import Judgement, Pool
from coevolve.pool.samplers import Retire, Sampler, Uniform, build_sampler

__all__ = ["Judgement", "Pool", "Retire", "Sampler", "SignalRecord", "Uniform", "build_sampler"]
