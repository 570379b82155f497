"""What can be known before anything runs: ``coevolve doctor`` and ``coevolve run RECIPE --check``."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import importlib.metadata
import os
import platform
import sys
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from coevolve.config import Config, EnvironmentConfig, LlmConfig
from coevolve.environments.base import Environment
from coevolve.environments.toolbox import ToolboxEnvironment
from coevolve.environments.workers import WorkerEnvironment
from coevolve.errors import ConfigError
from coevolve.types import Split

SPLITS: tuple[Split, ...] = ("train", "dev", "test")
TESTED_TRL = "1.16.0"
_NEEDS_GIB = 3.0  # memory of the demo


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact about this machine."""

    what: str
    ok: bool
    detail: str
    needed: bool = False
    """``coevolve run`` does not work without it."""

    def __str__(self) -> str:
        mark = "ok" if self.ok else "MISSING" if self.needed else "absent"
        return f"{mark:8}{self.what}: {self.detail}"


def examine() -> list[Finding]:
    """Python, machine, packages, environments, the built-in policy and accelerators."""
    from coevolve.environments.registry import known
    from coevolve.models.loading import TINY

    supported = sys.version_info[:2] >= (3, 11)
    found = [
        Finding("python", supported, f"{platform.python_version()} (3.11 or later)", needed=True),
        Finding("cores", True, f"{_cores()} usable by this process"),
        _memory(),
        _package("torch", "to train", "train", needed=True),
        _package("transformers", "to train", "train", needed=True),
        _trl(),
        _package("peft", "for LoRA adapters", "train"),
        _package("vllm", "to generate quickly on GPUs", "vllm"),
        _package("openai", "for an LLM behind an endpoint as explorer", "llm"),
    ]
    for name, state in known().items():
        found.append(Finding(f"environment {name}", state.startswith("ready"), state))
    shipped = (TINY / "model.safetensors").exists()
    found.append(Finding("tiny policy", shipped, "shipped" if shipped else "'make tiny-policy' builds it"))
    found.append(_accelerator())
    return found


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _memory() -> Finding:
    """The machine's memory, or a container's share of it."""
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            size = min(size, int(Path(limit).read_text()))
    enough = size / 2**30 >= _NEEDS_GIB
    detail = f"{size / 2**30:.1f} GiB" + ("" if enough else f"; the demo takes {_NEEDS_GIB:.0f} GiB")
    return Finding("memory", enough, detail)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _package(package: str, purpose: str, extra: str, needed: bool = False) -> Finding:
    version = _version(package)
    detail = f"{version}" if version else f"needed {purpose}: pip install 'coevolve[{extra}]'"
    return Finding(package, version is not None, detail, needed)


def _trl() -> Finding:
    version = _version("trl")
    if version in (None, TESTED_TRL):
        return _package("trl", "to train", "train", needed=True)
    detail = f"{version}, but this version of CoEvolve needs {TESTED_TRL}: pip install 'trl=={TESTED_TRL}'"
    return Finding("trl", False, detail, needed=True)


def _accelerator() -> Finding:
    if _version("torch") is None:
        return Finding("GPU", False, "unknown without torch")
    import torch

    if not torch.cuda.is_available():
        return Finding("GPU", False, "none: the tiny policy trains on the CPU, larger models need one")
    devices = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    return Finding("GPU", True, ", ".join(f"{d.name} ({d.total_memory / 2**30:.0f} GiB)" for d in devices))


def consequences(findings: Sequence[Finding]) -> list[str]:
    """What follows for someone at this machine, in sentences."""
    by_name = {finding.what: finding for finding in findings}
    lacking = [finding.what for finding in findings if finding.needed and not finding.ok]
    if lacking:
        return [
            f"'coevolve run' does not work here without {', '.join(lacking)}; "
            "'coevolve explore', 'tasks' and 'signals' do"
        ]
    gpu, policy = by_name["GPU"].ok, by_name["tiny policy"].ok
    fetched = all(f.ok for f in findings if f.what.startswith("environment "))
    first = "the demo runs here" if policy else "once the tiny policy is built, the demo runs here"
    lines = [first + ("" if fetched else "; its first run needs a network once, to fetch BFCL")]
    if not gpu:
        lines.append("recipes for larger models can be validated here ('coevolve run RECIPE --check')")
    elif by_name["vllm"].ok:
        lines.append("recipes for larger models can run here as far as GPU memory allows")
    else:
        lines.append("recipes for larger models run here with --set train.vllm=off, slowly, or after vllm")
    return lines


def check_recipe(config: Config) -> list[str]:
    """Validate a configuration as far as possible without weights or a GPU.

    Returns one line per thing checked or left unchecked.

    Raises:
        ConfigError: something in it cannot work.
    """
    from coevolve.environments.registry import make

    environment = make(config.environment)
    insist_on_worlds(environment, config.environment)
    worlds = ", ".join(f"{len(environment.worlds(split))} {split}" for split in SPLITS)
    train = config.train
    rollouts = train.tasks_per_step * train.group_size
    wanted = {name: getattr(config.signals, name) for name in type(config.signals).model_fields}
    return [
        f"checked: environment {environment.name} ({environment.version}), worlds: {worlds}",
        f"checked: a step of {train.tasks_per_step} tasks x {train.group_size} = {rollouts} rollouts",
        f"checked: signals {', '.join(n for n, section in wanted.items() if section) or 'none'}",
        *_check_tasks(config),
        *_check_explorer(config),
        _check_model(config),
        *_check_training(config),
    ]


def insist_on_worlds(environment: Environment, config: EnvironmentConfig) -> None:
    """Raises ConfigError where there is nothing to explore; a user's own class is tried out."""
    if environment.worlds("train"):
        own = environment.inner if isinstance(environment, WorkerEnvironment) else environment
        if isinstance(own, ToolboxEnvironment):
            own.try_out()
        return
    chosen = "" if config.classes == "all" else f" with environment.classes {', '.join(config.classes)}"
    way = "give it some" if config.classes == "all" else "name more classes, or use environment.classes: all"
    raise ConfigError(f"environment {config.name}{chosen} has no train worlds to explore: {way}")


def _check_tasks(config: Config) -> list[str]:
    """The file that D_0 begins with, if there is one."""
    if config.pool.tasks is None:
        return []
    from coevolve.pool.portable import TaskFile

    rows = len(TaskFile(Path(config.pool.tasks)))
    return [f"checked: {rows} tasks to read in {config.pool.tasks}; not checked: whether they may enter"]


def _check_explorer(config: Config) -> list[str]:
    """Who explores, and the language model where one is asked; nothing goes over a network."""
    from coevolve.explorers import asks_llm, check_staff

    check_staff(config)
    lines = [f"checked: explorer {config.explore.kind}"]
    llm = config.llm
    if not asks_llm(config):
        return lines
    if llm.base_url is None:
        return [*lines, f"not checked: language model {llm.model}, loaded here"]
    from coevolve.llm.endpoint import Endpoint

    endpoint = Endpoint(llm)
    endpoint.close()
    key = f"with the key in {llm.key}" if os.environ.get(llm.key) else f"without a key ({llm.key} is not set)"
    return [
        *lines,
        f"checked: language model {endpoint.name}, {key}; not checked: whether it answers "
        "('coevolve doctor --llm URL' asks)",
    ]


def ask_endpoint(config: LlmConfig, seconds: float = 10.0) -> Finding:
    """Whether the endpoint answers, and with which models; the one check that uses a network."""
    what = f"endpoint {config.base_url}"
    try:
        import openai
    except ImportError:
        return Finding(what, False, "cannot be asked: pip install 'coevolve[llm]'")
    key = os.environ.get(config.key, "").strip()
    client = openai.OpenAI(base_url=config.base_url, api_key=key or "none", timeout=seconds, max_retries=0)
    try:
        names = [model.id for model in client.models.list().data]
    except openai.APIStatusError as error:
        return Finding(
            what, False, f"refuses to list its models ({error.status_code}); key from {config.key}"
        )
    except Exception as error:  # whatever a wrong URL or a server of another kind brings about
        said = " ".join(str(error).split())[:200]
        return Finding(what, False, f"gives no answer ({said.replace(key, '***') if key else said})")
    finally:
        client.close()
    there = config.model in names if config.model else bool(names)
    detail = f"answers with {', '.join(names[:8]) or 'no model'}"
    return Finding(what, there, detail if there else f"{detail}; not with {config.model or 'any'}")


def _check_model(config: Config) -> str:
    """The tokenizer, where its files are on this disk; the weights never."""
    if _version("transformers") is None:
        return f"not checked: model {config.model} (pip install 'coevolve[train]')"
    from coevolve.models.loading import load_tokenizer, locate
    from coevolve.rollout.chat import Chat

    here = locate(config.model)
    if not Path(here).is_dir() and not _downloaded(here):
        return f"not checked: model {config.model}, its chat template and weights (not on this disk)"
    chat = Chat(load_tokenizer(config.model), config.rollout)
    return (
        f"checked: model {config.model}: chat template with {chat.format.name} calls; "
        "not checked: its weights"
    )


def _downloaded(name: str) -> bool:
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(name, "tokenizer_config.json"), str)


def _check_training(config: Config) -> list[str]:
    if _version("trl") is None:
        return ["not checked: training (pip install 'coevolve[train]')"]
    from trl import GRPOConfig

    from coevolve.training.settings import per_process, trl_arguments

    known = {field.name for field in dataclasses.fields(GRPOConfig)}
    for key in config.train.extra:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.0)
            raise ConfigError(f"train.extra.{key}: GRPOConfig has no such key, did you mean {near[0]!r}?")
    chosen = trl_arguments(config, Path("unused"), 1, gpu=True)
    # As on the CPU of this process: what a GPU must be there for is left out.
    here = {"bf16": False, "use_cpu": True, "use_vllm": False, "output_dir": tempfile.gettempdir()}
    try:
        with warnings.catch_warnings(action="ignore"):
            GRPOConfig(**{**chosen, **here})
    except (TypeError, ValueError, ImportError) as error:
        raise ConfigError(f"train: TRL refuses these settings ({' '.join(str(error).split())})") from None
    counts = []
    for processes in (1, 2, 4, 8, 16, 32, 64):
        with contextlib.suppress(ConfigError):
            per_process(config, processes)
            counts.append(str(processes))
    lines = [
        f"checked: TRL {_version('trl')} takes the settings",
        f"checked: a step can be split over {', '.join(counts)} processes",
    ]
    if config.train.vllm != "off":
        version = _version("vllm")
        there = (
            f"vLLM {version}" if version else "vLLM (not here: pip install 'coevolve[vllm]' where this runs)"
        )
        lines.append(f"not checked: {there}, GPU memory")
    return lines
