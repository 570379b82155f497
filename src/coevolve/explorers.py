"""Who explores, who words tasks, and who is asked besides replay, by ``explore`` and ``verify``."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from coevolve.config import Config
from coevolve.environments.base import Environment
from coevolve.errors import ConfigError
from coevolve.explore.base import Explorer
from coevolve.explore.policy import PolicyExplorer
from coevolve.explore.scripted import ScriptedExplorer
from coevolve.synthesize.abstract import TemplateAbstractor
from coevolve.synthesize.base import Abstractor
from coevolve.synthesize.replay import Replayer
from coevolve.synthesize.wording import instruction
from coevolve.types import Observation, ToolCall, ToolSpec

if TYPE_CHECKING:
    from coevolve.rollout.chat import Chat
    from coevolve.rollout.sampler import Sampler

WISHES_TO_TASKS = 4
"""Candidates of one exploration by the policy: it tries a dozen unrelated things."""


class LivePolicy(Protocol):
    """The policy as it is now: a training engine, or weights that were only loaded."""

    model: Any
    tokenizer: Any
    chat: Chat

    def sampler(self, temperature: float | None = None, *names: object) -> Sampler:
        """Samples from the weights as they are now, with a random generator seeded by ``names``."""


@dataclass(frozen=True, slots=True)
class Staff:
    """Stages 2 and 3, ready to work."""

    explorer: Explorer
    abstractor: Abstractor


def asks_policy(config: Config) -> bool:
    """Whether the policy itself explores, or must solve what is found."""
    solver = config.verify.solver
    return config.explore.kind == "policy" or (solver is not None and solver.by == "policy")


def asks_llm(config: Config) -> bool:
    """Whether the model of ``llm`` is asked for anything."""
    solver = config.verify.solver
    return config.explore.kind == "llm" or config.verify.safety or (solver is not None and solver.by == "llm")


def check_staff(config: Config, processes: int = 1) -> None:
    """Refuse what cannot work, before anything is made.

    Raises:
        ConfigError: no model where one is asked, or a policy whose weights do not lie whole in this process.
    """
    if asks_llm(config) and not config.llm.model:
        who = "explore.kind: llm" if config.explore.kind == "llm" else "verify"
        raise ConfigError(
            f"{who} asks a language model and none is named: set llm.base_url and llm.model to an "
            "OpenAI-compatible endpoint, or llm.model alone to a Hugging Face id or folder"
        )
    if not asks_policy(config):
        return
    parts = [
        (processes > 1, f"{processes} processes"),
        (config.train.vllm != "off", f"train.vllm: {config.train.vllm}"),
        (os.environ.get("ACCELERATE_USE_DEEPSPEED", "").lower() == "true", "DeepSpeed"),
        (os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true", "FSDP"),
    ]
    found = [name for there, name in parts if there]
    if found:
        key = "explore.kind: policy" if config.explore.kind == "policy" else "verify.solver.by: policy"
        raise ConfigError(
            f"{key} needs the policy's weights whole in one process, which they are not with "
            f"{' and '.join(found)}; use one process without it, or ask an LLM instead"
        )


def hire(
    config: Config, environment: Environment, replayer: Replayer, policy: LivePolicy | None = None
) -> Staff:
    """Explorer and abstractor of a configuration.

    Args:
        replayer: shared with the verifier, so that a run is paid for once.
        policy: needed where :func:`asks_policy` says so.

    Raises:
        ConfigError: see :func:`check_staff`.
    """
    check_staff(config)
    if config.explore.kind == "policy":
        assert policy is not None, "explore.kind: policy is assembled with a policy"
        return _by_policy(config, environment, replayer, policy)
    return Staff(
        ScriptedExplorer(environment, config.explore),
        TemplateAbstractor(environment, config.explore, replayer),
    )


def _by_policy(config: Config, environment: Environment, replayer: Replayer, policy: LivePolicy) -> Staff:
    explorer = PolicyExplorer(environment, config.explore, policy.chat, policy.sampler, config.rollout, wish)
    return Staff(
        explorer, TemplateAbstractor(environment, config.explore, replayer, per_exploration=WISHES_TO_TASKS)
    )


def wish(name: str, tools: Mapping[str, ToolSpec], rng: random.Random) -> str:
    """A request for one tool in the words of the synthesised tasks, without a value for any argument."""
    return instruction([ToolCall(name)], tools, [Observation("")], rng)
