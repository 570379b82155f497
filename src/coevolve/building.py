"""The parts of a run, built from its configuration: the loop, the engine, the policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from coevolve.config import Config
from coevolve.environments.base import Environment
from coevolve.errands import Found
from coevolve.errors import ConfigError, RunError
from coevolve.evaluation.heldout import HeldOut
from coevolve.evolution import Evolution
from coevolve.explorers import LivePolicy, Staff, asks_policy, check_staff, hired
from coevolve.loop import CoEvolution
from coevolve.pool import Pool, build_sampler
from coevolve.rundir import RunDirectory
from coevolve.synthesize.screen import Screen
from coevolve.synthesize.verify import ReplayVerifier

if TYPE_CHECKING:
    from coevolve.rollout.sampler import Sampler
    from coevolve.training.trl import TrlEngine


@contextmanager
def assembled(
    config: Config,
    environment: Environment,
    pool: Pool,
    tests: Sequence[HeldOut] = (),
    policy: LivePolicy | None = None,
    cache: Path | None = None,
) -> Iterator[CoEvolution]:
    """The loop of a configuration; at the end, whatever is in flight ends and connections close.

    Args:
        tests: nothing of them enters the pool.
        policy: it explores, or must solve what is found, where the configuration says so; and what it is
            not shown of an observation no task may need.
        cache: a file for a language model's answers.

    Raises:
        ConfigError: an explorer or a gate that cannot be built.
    """
    with hired(config, environment, policy, cache) as staff:
        loop = CoEvolution(
            environment,
            pool,
            config.signals,
            staff.explorer,
            staff.abstractor,
            partial(judge, config, environment, staff, tests),
            evolve=config.evolve,
            seed=config.seed,
            sampler=build_sampler(config.pool),
            concurrency=staff.concurrency,
            limits=staff.limits,
        )
        with closing(loop):
            yield loop


@contextmanager
def evolution_alone(
    config: Config,
    environment: Environment,
    pool: Pool,
    run: RunDirectory | None = None,
    watch: Callable[[Found], None] | None = None,
) -> Iterator[Evolution]:
    """Stages 2 and 3 of a configuration, without training; connections close at the end.

    Args:
        run: whose trained policy explores, where the configuration says that a policy does.
        watch: shown what came of each exploration.

    Raises:
        ConfigError: an explorer or a gate that cannot be built.
    """
    policy = load_weights(config, run) if asks_policy(config) else None
    with hired(config, environment, policy) as staff:
        yield Evolution(
            environment,
            pool,
            staff.explorer,
            staff.abstractor,
            judge(config, environment, staff, (), pool),
            config.seed,
            staff.concurrency,
            staff.limits,
            watch,
        )


def judge(
    config: Config, environment: Environment, staff: Staff, tests: Sequence[HeldOut], pool: Pool
) -> ReplayVerifier:
    """The door to ``pool``."""
    held = [task for test in tests for task in test.tasks]
    held += environment.tasks(config.evaluate.split)
    return ReplayVerifier(
        environment,
        config.verify,
        Screen(pool, held, names=environment.names),
        replayer=staff.replayer,
        shown=staff.shown,
        gates=staff.gates,
    )


class Weights:
    """A policy that was only loaded."""

    def __init__(self, config: Config, path: Path | None = None) -> None:
        """``path`` holds the weights, where they are not the ones that the configuration names."""
        import torch

        from coevolve.models.loading import load_policy
        from coevolve.rollout.chat import Chat

        with quiet():
            if path is not None and config.adapter == "lora":
                from peft import PeftModel

                policy = load_policy(config.model, config.train.precision)
                self.model: Any = PeftModel.from_pretrained(policy.model, path)
            else:
                policy = load_policy(str(path or config.model), config.train.precision)
                self.model = policy.model
        if torch.cuda.is_available():
            self.model.to("cuda")
        self.tokenizer: Any = policy.tokenizer
        self.chat = Chat(self.tokenizer, config.rollout)
        self._seed = config.seed

    def sampler(self, temperature: float | None = None, *names: object) -> Sampler:
        """Greedy by default; a random generator of its own, seeded by ``names``."""
        from coevolve.training.sampling import ModelSampler, stream_seed

        return ModelSampler(
            self.model,
            self.chat.stop_ids,
            self.tokenizer.pad_token_id,
            temperature=temperature or 0.0,
            seed=stream_seed(self._seed, *names),
        )


def load_weights(config: Config, run: RunDirectory | None = None) -> Weights:
    """The policy that a configuration names, as its run has trained it so far."""
    if run is None or not run.checkpoints.is_dir():
        return Weights(config)
    from coevolve.training.checkpoint import latest_complete

    found = latest_complete(run.checkpoints)
    if found.path is None and found.ignored:
        raise RunError(
            f"no checkpoint of run {run.path} is complete ({found.ignored[0]}): put a copy back, or go on "
            "with the run first"
        )
    return Weights(config, found.path)


def load_engine(config: Config, run: RunDirectory, environment: Environment, console: Console) -> TrlEngine:
    """Policy and trainer of a configuration, refused here if they cannot work together.

    Raises:
        ConfigError: a model that cannot be used, or settings that TRL refuses.
    """
    from coevolve.models.loading import load_policy
    from coevolve.rollout.chat import Chat
    from coevolve.training.trl import TrlEngine, arguments

    with quiet():
        policy = load_policy(config.model, config.train.precision)
    chat = Chat(policy.tokenizer, config.rollout)
    engine = TrlEngine(
        policy.model,
        policy.tokenizer,
        chat,
        environment,
        config,
        run.path,
        notice=lambda text: console.print(text, style="bold yellow", markup=False, soft_wrap=True),
    )
    if config.evaluate.every and engine.processes.count > 1:
        raise ConfigError("evaluate.every: scores in between need a single process; set it to 0")
    check_staff(config, engine.processes.count)
    arguments(config, run.checkpoints, engine.processes.count)  # refused now, not after D_0 and the scores
    return engine


@contextmanager
def quiet() -> Iterator[None]:
    """Without the bars and warnings of the library that loads weights: what matters is checked by us.

    (It warns of tied weights as missing from a checkpoint, which they always are.)
    """
    from transformers.utils import logging

    shown, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if shown:
            logging.enable_progress_bar()


def gather_policy(config: Config, engine: TrlEngine) -> None:
    """Score the weights of the last checkpoint: the trained ones may lie in parts over the processes."""
    found = engine.resume_point()
    assert found.path is not None, "training ends with a checkpoint"
    engine.model = Weights(config, found.path).model
