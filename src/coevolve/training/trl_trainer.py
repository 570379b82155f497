"""GRPOTrainer with our rollouts, Equation 1's group weights, demonstrations and whole checkpoints.

The dataset is only a step clock, each row a slot; real tasks are drawn when TRL generates, so a task
admitted after one step can be drawn at the next.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from transformers import PrinterCallback
from trl import GRPOConfig, GRPOTrainer
from trl.models.utils import unwrap_model_for_generation

from coevolve.disk import insist_on_disk
from coevolve.errors import RunError, TrainingError
from coevolve.rollout.sampler import Sampler
from coevolve.training.checkpoint import publish
from coevolve.training.collect import Collected, collect, named
from coevolve.training.demonstrate import Demonstrations, pad_tokens, plan
from coevolve.training.engine import KeepsFiles
from coevolve.training.key_values import attends_plainly
from coevolve.training.metrics import LOG, demonstration_record, headline, step_record
from coevolve.training.objective import only, teaches, weigh_groups
from coevolve.training.packing import packed_logprobs
from coevolve.training.parts import Parts, adapter, as_trl, reward
from coevolve.training.sampling import ModelSampler, stream_seed
from coevolve.training.trackers import Trackers
from coevolve.training.turns import TurnSampler
from coevolve.types import Outcome

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # rollout_func is experimental: the version is pinned


class LoopTrainer(GRPOTrainer):  # type: ignore[misc]
    """One training run; see :class:`coevolve.training.trl.TrlEngine`."""

    def __init__(self, model: Any, tokenizer: Any, args: GRPOConfig, parts: Parts) -> None:
        self.parts = parts
        self._collected: Collected | None = None
        self._demonstrations: Demonstrations | None = None
        self._demonstration_loss = 0.0
        self._seconds: dict[str, float] = {}
        super().__init__(
            model=model,
            reward_funcs=[reward],
            args=args,
            # As many rows as tasks in a step: one epoch is one step, and no resume lands inside one.
            train_dataset=Dataset.from_dict({"prompt": ["-"] * parts.config.train.tasks_per_step}),
            processing_class=tokenizer,
            peft_config=adapter(parts.config),
            rollout_func=_rollouts,
        )
        self.remove_callback(PrinterCallback)
        self._trackers: Trackers | None = None
        if parts.config.train.report_to and parts.processes.main:
            self._trackers = Trackers(parts.config.train.report_to, parts.checkpoints.parent)
            self.add_callback(self._trackers)
        attention = self.model.config._attn_implementation
        on_cpu = self.accelerator.device.type == "cpu"
        self._packs = on_cpu and attention == "sdpa" and attends_plainly(self.model.config)
        # Where the clipped term is all there is, a rollout without an advantage has no gradient.
        self._skips = (
            self.beta == 0
            and not self._entropy_bonus_enabled
            and self.top_entropy_quantile == 1.0
            and not self.aux_loss_enabled
        )

    # Rollouts

    def sample_step(self) -> Collected:
        """Draw, act and observe for the step that begins."""
        parts = self.parts
        step = self.state.global_step + 1
        collected = collect(
            step,
            parts.source,
            parts.config,
            parts.environment,
            parts.chat,
            self._sampling,
            parts.processes,
        )
        self._collected = collected
        rollouts = [r for group in collected.groups for r in group.rollouts]
        if step == 1 and not any(r.reward > 0 for r in rollouts if r.outcome is not Outcome.INVALID):
            parts.notice(
                f"step {step}: not one of {len(rollouts)} rollouts earned any reward, so this step teaches "
                "nothing; if that goes on, the policy is too weak for these tasks, or they cannot be solved"
            )
        return collected

    @contextmanager
    def _sampling(self) -> Iterator[Sampler]:
        parts = self.parts
        pad = self.processing_class.pad_token_id
        if self.use_vllm:
            turns = TurnSampler(
                lambda prompts: self._generate_single_turn(prompts, None, {}, 1), parts.processes, pad
            )
            try:
                yield turns
            finally:
                turns.drain()
            return
        seed = stream_seed(parts.config.seed, "rollout", self.state.global_step + 1, parts.processes.rank)
        with (
            unwrap_model_for_generation(
                self.model_wrapped,
                self.accelerator,
                gather_deepspeed3_params=self.args.ds3_gather_for_generation,
                gradient_checkpointing_kwargs=self.args.gradient_checkpointing_kwargs,
            ) as model,
            self._dist.summon_full_params(self.model_wrapped, recurse=False),
            self.accelerator.autocast(),
        ):
            yield ModelSampler(model, parts.chat.stop_ids, pad, temperature=self.temperature, seed=seed)

    # Loss

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        began = time.perf_counter()
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        collected = self._collected
        assert collected is not None
        train = self.parts.config.train
        weighting = weigh_groups(collected.groups, train.normalise)
        share = len(collected.mine)
        mine = slice(self.parts.processes.rank * share, (self.parts.processes.rank + 1) * share)
        device = output["advantages"].device
        output["advantages"] = weighting.advantages[mine].to(device)
        # TRL multiplies every term of the loss by this mask, so it can carry the weights as well.
        output["tool_mask"] = output["tool_mask"] * weighting.weights[mine].to(device)[:, None]
        output["num_items_in_batch"] = torch.tensor(weighting.tokens, device=device)
        if train.demonstrate > 0:
            self._demonstrations = plan(
                collected.groups,
                train.demonstrate,
                self.args.steps_per_generation,
                self.parts.processes,
                self.parts.chat,
                self.parts.environment,
            )
        self._demonstration_loss = 0.0
        spent = time.perf_counter() - began
        stages = collected.seconds
        self._seconds.update(stages, score=spent - sum(stages.values()), prepared=spent)
        return output

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        compute_aux_loss: bool = False,
        **images: Any,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """TRL's, but packed where that pays: on a CPU, with plain attention."""
        if not self._packs or compute_aux_loss:
            result: tuple[Tensor, Tensor | None, Tensor | None] = super()._get_per_token_logps_and_entropies(
                model,
                input_ids,
                attention_mask,
                logits_to_keep,
                batch_size,
                compute_entropy,
                compute_aux_loss,
                **images,
            )
            return result
        packed = packed_logprobs(
            model, input_ids, attention_mask, logits_to_keep, compute_entropy, self.accelerator.autocast
        )
        return *packed, None

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Tensor:
        if self._skips:
            chosen = teaches(inputs)
            rows = self.accelerator.gather(chosen.sum().reshape(1)).max().clamp(min=1)
            inputs = only(inputs, chosen, int(rows))
        loss: Tensor = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        if self._demonstrations is not None:
            loss = loss + self._learn_from_solutions(model, self._demonstrations)
        self._insist_finite(loss.detach(), "loss")
        return loss

    def _learn_from_solutions(self, model: Any, plan: Demonstrations) -> Tensor | float:
        """w / P times the token-mean negative log-likelihood of each solution, where all K failed."""
        turn = self._step % self.args.steps_per_generation
        if not plan.active[turn]:
            return 0.0
        rows = pad_tokens(plan.mine[turn], self.processing_class.pad_token_id)
        ids, attention, mask = (x.to(self.accelerator.device) for x in rows[:3])
        logprobs, _, _ = self._get_per_token_logps_and_entropies(model, ids, attention, rows[3])
        each: Tensor = -(logprobs * mask).sum(1) / mask.sum(1).clamp(min=1)
        self._demonstration_loss += float(each.detach().sum()) * plan.scale
        return each.sum() * plan.scale * self.parts.processes.count  # DDP takes the mean over processes

    def _clip_grad_norm(self, model: Any) -> Any:
        norm = super()._clip_grad_norm(model)
        self._insist_finite(torch.as_tensor(norm), "gradient norm")
        return norm

    def _insist_finite(self, value: Tensor, what: str) -> None:
        good = torch.isfinite(value).all().float().reshape(1).to(self.accelerator.device)
        if self.accelerator.gather(good).min() == 0:
            raise TrainingError(
                f"step {self.state.global_step + 1}: the {what} is {value.item()}; the weights were left as "
                f"they were and the last checkpoint in {self.parts.checkpoints} is intact; lower "
                f"train.learning_rate before going on ({self._batch()})"
            )

    def _batch(self) -> str:
        """Which tasks the step was on, for whoever looks for the culprit."""
        return named([group.task for group in self._collected.groups] if self._collected else [])

    def _insist_on_weights(self) -> None:
        """Every weight a number: a checkpoint of others would take the place of the last good one."""
        wrong = [name for name, w in self.model.named_parameters() if not bool(torch.isfinite(w).all())]
        good = torch.tensor([float(not wrong)], device=self.accelerator.device)
        if self.accelerator.gather(good).min() == 0:
            raise TrainingError(
                f"step {self.state.global_step}: after the update {wrong[0] if wrong else 'a weight'} is not "
                f"finite; no checkpoint was written and the last one in {self.parts.checkpoints} is intact; "
                f"lower train.learning_rate before going on ({self._batch()})"
            )

    # Record

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        super().log(logs, start_time)
        parts, collected = self.parts, self._collected
        if collected is None or "loss" not in logs:
            return
        demonstrated = sum(parts.processes.gather([self._demonstration_loss]))
        seconds, self._seconds = self._seconds, {}
        seconds["update"] = logs.get("step_time", 0.0) - seconds.pop("prepared", 0.0)
        if not parts.processes.main:
            return
        record = {"step": self.state.global_step, **step_record(collected, logs)}
        if parts.config.train.demonstrate > 0:
            record |= demonstration_record(self._demonstrations, demonstrated)
        if parts.source is not None:
            record["source"] = parts.source.metrics()
        if happened := parts.environment.metrics():
            record["environment"] = happened
        record["seconds"] = {name: round(value, 4) for name, value in sorted(seconds.items())}
        parts.metrics.append(record)
        if self._trackers is not None:
            self._trackers.tell(self.args, self.state, self.control, record)
        if parts.progress is not None:
            parts.progress(self.state.global_step, headline(record))

    # Checkpoint

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """None: a checkpoint of a run is no release."""

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        began = time.perf_counter()
        self._insist_on_weights()
        step = self.state.global_step
        parts, scratch = self.parts, Path(self.args.output_dir)
        folder = scratch / f"checkpoint-{step}"
        try:
            what = f"cannot write checkpoint {parts.checkpoints / f'step-{step}'}"
            with insist_on_disk(parts.checkpoints, what):
                super()._save_checkpoint(model, trial)
                parts.processes.together(lambda: None)  # every process has written its files
                parts.processes.share(lambda: self._publish(folder, step))
        except RunError:
            shutil.rmtree(scratch, ignore_errors=True)  # half a checkpoint: the room it takes is needed
            raise
        self._seconds["checkpoint"] = time.perf_counter() - began

    def _publish(self, folder: Path, step: int) -> None:
        source = self.parts.source
        if isinstance(source, KeepsFiles):
            (folder / "source").mkdir()
            source.save_state(folder / "source")
        state = {} if source is None else source.state_dict()
        (folder / "source.json").write_text(json.dumps(state) + "\n")
        self.parts.metrics.copy(folder / LOG)
        facts = {"processes": self.parts.processes.count, "metrics_bytes": self.parts.metrics.size()}
        publish(folder, self.parts.checkpoints, step, facts, self.parts.config.checkpoint.keep)


def _rollouts(prompts: list[Any], trainer: LoopTrainer) -> dict[str, Any]:
    """TRL's ``rollout_func``: the prompts are slots of the step clock, one completion is due for each."""
    collected = trainer.sample_step()
    assert len(collected.mine) == len(prompts), "the step clock and the step's share of rollouts agree"
    return as_trl(collected.mine, trainer.processing_class.pad_token_id, logprobs=trainer.use_vllm)
