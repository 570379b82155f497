"""What can be known before anything runs: ``coevolve doctor`` and ``coevolve run RECIPE --check``."""

from __future__ import annotations

import dataclasses
import difflib
import importlib.metadata
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

from coevolve.config import Config, EnvironmentConfig
from coevolve.environments.base import Environment
from coevolve.errors import ConfigError
from coevolve.types import Split

SPLITS: tuple[Split, ...] = ("train", "dev", "test")
TESTED_TRL = "1.16.0"


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact about this machine."""

    what: str
    ok: bool
    detail: str
    needed: bool = False
    """Nothing runs without it."""


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _package(package: str, purpose: str, extra: str) -> Finding:
    version = _version(package)
    detail = f"{version}" if version else f"needed for {purpose}; pip install 'coevolve[{extra}]'"
    return Finding(package, version is not None, detail)


def examine() -> list[Finding]:
    """Python, packages, environments, memory, cores and accelerators of this machine."""
    from coevolve.environments.registry import known

    major, minor = sys.version_info[:2]
    found = [
        Finding("python", (major, minor) >= (3, 11), platform.python_version(), needed=True),
        Finding("cores", True, f"{os.cpu_count()}"),
        Finding(
            "memory", True, f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB"
        ),
        _package("torch", "training", "train"),
        _package("transformers", "training", "train"),
        _package("trl", "training", "train"),
        _package("peft", "LoRA adapters", "train"),
        _package("vllm", "generation on GPUs", "vllm"),
    ]
    trl = _version("trl")
    if trl not in (None, TESTED_TRL):
        found.append(
            Finding("trl version", False, f"{trl} is installed, training/trl.py was written for {TESTED_TRL}")
        )
    for name, state in known().items():
        found.append(Finding(f"environment {name}", state.startswith("ready"), state))
    found.append(_accelerator())
    return found


def _accelerator() -> Finding:
    if _version("torch") is None:
        return Finding("GPU", False, "unknown without torch")
    import torch

    if not torch.cuda.is_available():
        return Finding("GPU", False, "none; the tiny policy trains on the CPU, larger models need one")
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return Finding("GPU", True, ", ".join(names))


def check_recipe(config: Config, processes: int = 1) -> list[str]:
    """Validate a configuration as far as possible without weights or a GPU.

    Returns one line per thing checked or left unchecked.

    Raises:
        ConfigError: something in it cannot work.
    """
    from coevolve.environments.registry import make
    from coevolve.signals import build

    lines: list[str] = []
    environment = make(config.environment)
    insist_on_worlds(environment, config.environment)
    worlds = {split: len(environment.worlds(split)) for split in SPLITS}
    lines.append(f"environment {environment.name} ({environment.version}): worlds {worlds}")
    lines.append(f"signals: {', '.join(s.kind for s in build(config.signals)) or 'none'}")
    rollouts = config.train.tasks_per_step * config.train.group_size
    lines.append(
        f"a step: {config.train.tasks_per_step} tasks x {config.train.group_size} = {rollouts} rollouts"
    )
    lines.append(_check_model(config))
    lines += _check_training(config, processes)
    return lines


def insist_on_worlds(environment: Environment, config: EnvironmentConfig) -> None:
    """Raises ConfigError where there is nothing to explore."""
    if environment.worlds("train"):
        return
    chosen = "" if config.classes == "all" else f" with environment.classes {', '.join(config.classes)}"
    way = "give it some" if config.classes == "all" else "name more classes, or use environment.classes: all"
    raise ConfigError(f"environment {config.name}{chosen} has no train worlds to explore: {way}")


def _check_model(config: Config) -> str:
    from coevolve.models.loading import load_tokenizer
    from coevolve.rollout.chat import Chat

    if config.model != "tiny" and not Path(config.model).expanduser().is_dir():
        return f"model {config.model}: not checked (its files are not on this disk)"
    Chat(load_tokenizer(config.model), config.rollout)
    return f"model {config.model}: chat template and tool format agree"


def _check_training(config: Config, processes: int) -> list[str]:
    if _version("trl") is None:
        return ["training: not checked (pip install 'coevolve[train]')"]
    from trl import GRPOConfig

    from coevolve.training.settings import trl_arguments

    known = {field.name for field in dataclasses.fields(GRPOConfig)}
    unknown = [key for key in config.train.extra if key not in known]
    if unknown:
        near = difflib.get_close_matches(unknown[0], known, n=1, cutoff=0.0)
        raise ConfigError(f"train.extra.{unknown[0]}: GRPOConfig has no such key, did you mean {near[0]!r}?")
    trl_arguments(config, Path("unused"), processes, gpu=True)
    lines = [f"TRL {_version('trl')}: accepts the settings"]
    if config.train.vllm != "off" and _version("vllm") is None:
        lines.append("vLLM: not installed here; needed where this runs (pip install 'coevolve[vllm]')")
    return lines
