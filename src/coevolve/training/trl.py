"""GRPO by TRL: one ``train()`` call over a live task pool.

Every touch of TRL is here and in :mod:`coevolve.training.trl_trainer`, written for version 1.16.0, whose
``rollout_func`` is experimental.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from trl import GRPOConfig

from coevolve.config import Config
from coevolve.environments.base import Environment
from coevolve.errors import ConfigError, RunError, TrainingError
from coevolve.rollout.chat import Chat
from coevolve.training.checkpoint import SCRATCH, Found, Ignored, clear, latest_complete
from coevolve.training.engine import KeepsFiles, TaskSource
from coevolve.training.memory import keep_freed_memory
from coevolve.training.metrics import LOG, MetricsLog
from coevolve.training.parts import Parts, Progress
from coevolve.training.processes import Processes
from coevolve.training.sampling import ModelSampler, stream_seed
from coevolve.training.settings import trl_arguments
from coevolve.training.trackers import insist_on_trackers
from coevolve.training.trl_trainer import LoopTrainer

Notice = Callable[[str], None]


def arguments(config: Config, folder: Path, processes: int = 1, **more: Any) -> GRPOConfig:
    """TRL's arguments for this configuration.

    Raises:
        ConfigError: TRL refuses them, or ``train.extra`` names an argument it does not have.
    """
    chosen = trl_arguments(config, folder, processes, torch.cuda.is_available())
    try:
        with _quiet():
            return GRPOConfig(**{**chosen, **more})
    except TypeError as error:
        raise ConfigError(f"train.extra: TRL's GRPOConfig refuses it ({error})") from None
    except (ValueError, ImportError) as error:
        raise ConfigError(f"train: TRL refuses these settings ({' '.join(str(error).split())})") from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the libraries' progress bars and their notes to each other on names to come."""
    shown = transformers.utils.logging.is_progress_bar_enabled()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning, module="transformers|trl|peft|accelerate")
        transformers.utils.logging.disable_progress_bar()
        try:
            yield
        finally:
            if shown:
                transformers.utils.logging.enable_progress_bar()


class TrlEngine:
    """Trains ``model`` in place with TRL's GRPOTrainer.

    Args:
        model: A causal language model. With ``train.beta`` above 0 and no adapter TRL loads the reference
            again from where the model came from; one that was built in memory is saved to
            ``run_dir/model`` first.
        run_dir: Receives ``checkpoints/`` and ``metrics.jsonl``.
        notice: Is told what a user must not miss; prints to standard error by default.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        chat: Chat,
        environment: Environment,
        config: Config,
        run_dir: Path,
        notice: Notice | None = None,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.chat = chat
        self.environment = environment
        insist_on_trackers(config.train.report_to)
        self.config = config
        self.run_dir = run_dir
        self.checkpoints = run_dir / "checkpoints"
        self.metrics = MetricsLog(run_dir / LOG)
        self.notice: Notice = notice or (lambda text: print(text, file=sys.stderr, flush=True))
        self.processes = Processes()
        self._told: list[Ignored] = []
        if not torch.cuda.is_available():
            cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
            keep_freed_memory()
            torch.set_num_threads(config.train.threads or max(1, cores // self.processes.count))

    def sampler(self, temperature: float | None = None, *names: object) -> ModelSampler:
        """A sampler on the policy as it is now; greedy by default, which is how scores are taken."""
        if torch.cuda.is_available() and self.model.device.type == "cpu":
            self.model.to(self.processes.device)
        return ModelSampler(
            self.model,
            self.chat.stop_ids,
            self.tokenizer.pad_token_id,
            temperature=temperature or 0.0,
            seed=stream_seed(self.config.seed, *names),
        )

    def resume_point(self) -> Found:
        """The checkpoint that :meth:`train` will go on from; says which broken ones it passes over."""
        found = latest_complete(self.checkpoints)
        for broken in found.ignored:
            if broken not in self._told:
                self._told.append(broken)
                self.notice(f"ignoring checkpoint {broken}")
        return found

    def train(
        self, source: TaskSource | None, steps: int | None = None, progress: Progress | None = None
    ) -> None:
        """Train until ``steps`` steps (by default the configuration's) are done in all.

        Args:
            source: Needed on the main process only.
            progress: Told the step and a few figures after each.

        Raises:
            ConfigError: TRL cannot work with the settings or the model.
            RunError: all steps were done already.
            TrainingError: no step was done, or training cannot go on.
        """
        steps = self.config.steps if steps is None else steps
        found = self.processes.share(self.resume_point)
        if found.path is not None and found.step >= steps:
            if not self.processes.main:  # the main process may be restoring, to score
                return
            raise RunError(
                f"{self.run_dir} already has {found.step} of {steps} steps; ask for more steps or use "
                "another run directory"
            )
        self.processes.share(lambda: self._prepare(source, found))
        trainer = self._trainer(source, steps, progress)
        self.model = trainer.accelerator.unwrap_model(trainer.model)
        with _quiet():
            trainer.train(resume_from_checkpoint=str(found.path) if found.path else None)
        done = int(trainer.state.global_step)
        if self.processes.main:
            clear(self.checkpoints)
        if done <= found.step:
            raise TrainingError(f"no step was done: training stopped at step {done} of {steps}")

    def restore(self, source: TaskSource | None = None) -> Found:
        """Take policy and source from the last complete checkpoint without training, e.g. to score them.

        Raises:
            RunError: there is none.
        """
        found = self.processes.share(self.resume_point)
        if found.path is None:
            raise RunError(f"{self.checkpoints} holds no complete checkpoint")
        if source is not None:
            self._load_source(source, found.path)
            self._restore_log(found)
            clear(self.checkpoints)
        if self.config.adapter == "lora":
            from peft import PeftModel

            self.model = PeftModel.from_pretrained(self.model, found.path)
        else:
            self.model = type(self.model).from_pretrained(found.path, dtype=self.model.dtype)
        return found

    def _prepare(self, source: TaskSource | None, found: Found) -> None:
        """On the main process: a clean place to write in, and the source where the checkpoint left it."""
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        clear(self.checkpoints)
        self._restore_log(found)
        if found.path is None or source is None:
            return
        if found.facts["processes"] != self.processes.count:
            self.notice(
                f"the checkpoint was written by {found.facts['processes']} process(es), now there are "
                f"{self.processes.count}: training goes on, but with other random numbers"
            )
        self._load_source(source, found.path)

    def _restore_log(self, found: Found) -> None:
        """The log as it was at the checkpoint, which has a copy of it."""
        if found.path is None:
            self.metrics.cut(0)
            return
        copy, size = found.path / LOG, int(found.facts.get("metrics_bytes", 0))
        if copy.exists():
            if not self.metrics.restore(copy):
                self.notice(f"{self.run_dir / LOG} was lost or changed: it is taken from {found.path}")
        elif self.metrics.size() < size:  # of a version that kept no copy
            self.notice(
                f"{self.run_dir / LOG} has {self.metrics.size()} bytes, at step {found.step} it had {size}: "
                "what is lost is missing from the summary and the report"
            )
        else:
            self.metrics.cut(size)

    def _load_source(self, source: TaskSource, checkpoint: Path) -> None:
        if isinstance(source, KeepsFiles):
            source.load_state(checkpoint / "source")
        source.load_state_dict(json.loads((checkpoint / "source.json").read_text()))

    def _trainer(self, source: TaskSource | None, steps: int, progress: Progress | None) -> LoopTrainer:
        config = self.config
        more: dict[str, Any] = {"max_steps": steps}
        if config.train.vllm != "off":
            chosen = config.train.extra.get("generation_kwargs", {})
            more["generation_kwargs"] = {"stop_token_ids": list(self.chat.stop_ids), **chosen}
        args = arguments(config, self.checkpoints / SCRATCH, self.processes.count, **more)
        if config.train.beta > 0 and config.adapter == "none":
            self.processes.share(self._place_reference)
            self.model.config._name_or_path = self.model.config._name_or_path or str(self.run_dir / "model")
        parts = Parts(
            config=config,
            environment=self.environment,
            chat=self.chat,
            source=source,
            processes=self.processes,
            metrics=self.metrics,
            checkpoints=self.checkpoints,
            progress=progress,
            notice=self.notice,
        )
        try:
            with _quiet():
                return LoopTrainer(self.model, self.tokenizer, args, parts)
        except (ValueError, OSError, ImportError, NotImplementedError) as error:
            raise ConfigError(f"train: TRL cannot start ({' '.join(str(error).split())})") from error

    def _place_reference(self) -> None:
        """TRL loads the reference from the model's own path, so a model made in memory must get one."""
        target, scratch = self.run_dir / "model", self.run_dir / "model.part"
        if self.model.config._name_or_path or target.exists():
            return
        shutil.rmtree(scratch, ignore_errors=True)
        self.model.save_pretrained(scratch)
        self.tokenizer.save_pretrained(scratch)
        scratch.rename(target)
