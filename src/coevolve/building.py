"""The parts of a run, built from its configuration: the loop, the policy, the engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console

from coevolve.config import Config
from coevolve.environments.base import Environment
from coevolve.errors import ConfigError
from coevolve.evaluation.heldout import HeldOut
from coevolve.explorers import LivePolicy, check_staff, hire
from coevolve.loop import CoEvolution
from coevolve.pool import Pool, build_sampler
from coevolve.rundir import RunDirectory
from coevolve.synthesize.replay import Replayer
from coevolve.synthesize.screen import Screen
from coevolve.synthesize.verify import ReplayVerifier

if TYPE_CHECKING:
    from coevolve.training.trl import TrlEngine


def assemble(
    config: Config,
    environment: Environment,
    pool: Pool,
    tests: Sequence[HeldOut] = (),
    policy: LivePolicy | None = None,
) -> CoEvolution:
    """The loop of a configuration; nothing of ``tests``, and nothing that the policy is not shown, enters
    its pool.

    Raises:
        ConfigError: an explorer or a gate that cannot be built.
    """
    held = [task for test in tests for task in test.tasks]
    held += environment.tasks(config.evaluate.split)
    replayer = Replayer(environment)
    staff = hire(config, environment, replayer, policy)

    def judge(pool: Pool) -> ReplayVerifier:
        shown = None if policy is None else lambda text: policy.chat.cut(text)[0]
        return ReplayVerifier(environment, config.verify, Screen(pool, held), replayer=replayer, shown=shown)

    return CoEvolution(
        environment,
        pool,
        config.signals,
        staff.explorer,
        staff.abstractor,
        judge,
        evolve=config.evolve,
        seed=config.seed,
        sampler=build_sampler(config.pool),
    )


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
    from coevolve.models.loading import load_policy

    found = engine.resume_point()
    assert found.path is not None, "training ends with a checkpoint"
    with quiet():
        if config.adapter == "lora":
            from peft import PeftModel

            base = load_policy(config.model, config.train.precision).model
            engine.model = PeftModel.from_pretrained(base, found.path)
        else:
            engine.model = load_policy(str(found.path), config.train.precision).model
