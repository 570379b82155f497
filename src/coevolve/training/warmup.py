"""Supervised warm-up: the stand-in for an instruct model's prior.

TRL's SFTTrainer on token-exact demonstrations of verified tasks from unguided exploration of train
worlds. These tasks are kept apart from ``D_0``, and nothing of the loop's feedback is in them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback
from trl import SFTConfig, SFTTrainer

from coevolve.types import Tokens


@dataclass(frozen=True, slots=True)
class WarmupRecipe:
    """Everything that shapes the supervised warm-up, beside its tasks."""

    steps: int = 3000
    batch: int = 32
    learning_rate: float = 2e-3
    warmup: int = 100
    """Steps of linear learning-rate warm-up; a cosine to a tenth follows."""
    weight_decay: float = 0.05
    seed: int = 0


def warm_up(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    demonstrations: Sequence[Tokens],
    recipe: WarmupRecipe,
    callbacks: Sequence[TrainerCallback] = (),
) -> list[dict[str, Any]]:
    """Train ``model`` in place on the policy's own tokens of each demonstration.

    Returns the trainer's log history (loss by step).
    """
    rows = {
        "input_ids": [[*d.prompt, *d.ids] for d in demonstrations],
        "completion_mask": [[0] * len(d.prompt) + list(d.mask) for d in demonstrations],
    }
    with tempfile.TemporaryDirectory() as scratch:
        trainer = SFTTrainer(
            model=model,
            args=SFTConfig(
                output_dir=scratch,
                max_steps=recipe.steps,
                per_device_train_batch_size=recipe.batch,
                learning_rate=recipe.learning_rate,
                lr_scheduler_type="cosine_with_min_lr",
                lr_scheduler_kwargs={"min_lr_rate": 0.1},
                warmup_steps=recipe.warmup,
                weight_decay=recipe.weight_decay,
                adam_beta2=0.95,
                seed=recipe.seed,
                completion_only_loss=True,
                max_length=None,
                train_sampling_strategy="group_by_length",
                gradient_checkpointing=False,
                bf16=False,
                use_cpu=not torch.cuda.is_available(),
                logging_steps=50,
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                dataloader_pin_memory=False,
            ),
            train_dataset=Dataset.from_dict(rows),
            processing_class=tokenizer,
            callbacks=list(callbacks),
        )
        trainer.train()
    model.eval()
    history: list[dict[str, Any]] = trainer.state.log_history
    return history
