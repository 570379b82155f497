"""A small policy, small tasks and a small task source, all real, for the training tests.

The policy is a two-layer Llama taught to use the key-value store for a second or two, so that some
rollouts solve their task and some do not.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from coevolve.config import Config
from coevolve.config_file import parse_config
from coevolve.rollout.agent import demonstration
from coevolve.rollout.chat import Chat
from coevolve.training.demonstrate import pad_tokens
from coevolve.training.trl import TrlEngine
from coevolve.types import Group, Origin, Task, ToolCall, World
from keyvalue import KeyValue, delete, get, put

COLORS = ("red", "green", "blue")


def tasks() -> list[Task]:
    """Short tasks in the store's train worlds: one or two calls, one or two turns."""
    made: list[tuple[tuple[str, ...], tuple[tuple[ToolCall, ...], ...], World]] = []
    for world in KeyValue().worlds("train"):
        for color in COLORS:
            one, two = (f"Set size to {color}.",), (f"Set size to {color}.", "Drop color.")
            made.append((one, ((put("size", color),),), world))
            made.append((two, ((put("size", color),), (delete("color"),)), world))
        made.append((("Say color.",), ((get("color"),),), world))
    return [
        Task("keyvalue", "1", world, turns, solution, Origin("unguided")) for turns, solution, world in made
    ]


def untaught() -> list[Task]:
    """Tasks that can be demonstrated and that the small policy has never seen."""
    world = KeyValue().worlds("train")[0]
    return [
        Task("keyvalue", "1", world, (f"Write {k}.",), ((put(k, "blue"),),), Origin("unguided"))
        for k in ("shape", "label", "owner")
    ]


def config(**changes: Any) -> Config:
    """A configuration of small steps; ``changes`` are sections or keys to merge in."""
    data: dict[str, Any] = {
        "steps": 2,
        "environment": {"name": "keyvalue", "workers": 0},
        "rollout": {"tokens_per_step": 24, "context_tokens": 160, "steps_per_turn": 3},
        "train": {"tasks_per_step": 4, "group_size": 4, "learning_rate": 1e-3, "threads": 1},
        "checkpoint": {"every": 100},
    }
    for key, value in changes.items():
        data[key] = {**data.get(key, {}), **value} if isinstance(value, dict) else value
    return parse_config(data, "test")


TEMPLATE = (
    "{#- coevolve: tools=none calls=python -#}"
    "{%- for message in messages -%}<|{{ message.role }}|>{{ message.content }}<|end|>{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"
)


def make_tokenizer() -> Any:
    """A byte-level BPE of 300 entries, trained on the tasks and their calls."""
    known = tasks()
    calls = [f"[{c.name}(key='{c.arguments['key']}'" for t in known for turn in t.solution for c in turn]
    texts = [turn for task in known for turn in task.turns] + calls + [f", value='{c}')]" for c in COLORS]
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    special = ["<|pad|>", "<|end|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|system|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    bpe.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|end|>", pad_token="<|pad|>")
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def make_policy(folder: Path, steps: int = 120) -> None:
    """Train the small policy from nothing and write it into ``folder``."""
    known, tokenizer = tasks(), make_tokenizer()
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=256,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    chat = Chat(tokenizer, config().rollout)
    shown = [
        demonstration(task, chat, KeyValue()) for task in known[:7]
    ]  # worlds differ in nothing that counts
    ids, attention, mask, after = pad_tokens(shown, tokenizer.pad_token_id)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        logits = model(input_ids=ids, attention_mask=attention).logits[:, -after - 1 : -1]
        each = torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, -after:], reduction="none")
        ((each * mask).sum() / mask.sum()).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        optimiser.zero_grad()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def load(folder: Path) -> tuple[Any, Any]:
    """Model and tokenizer."""
    return AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


class ListSource:
    """Draws from a fixed list with its own generator; remembers what it saw."""

    def __init__(self, pool: Sequence[Task], seed: int = 0) -> None:
        self.pool = list(pool)
        self.random = random.Random(f"{seed}/draw")
        self.seen: list[tuple[int, list[str], list[list[float]]]] = []
        self.groups: list[Sequence[Group]] = []

    def draw(self, n: int) -> list[Task]:
        return [self.random.choice(self.pool) for _ in range(n)]

    def observe(self, step: int, groups: Sequence[Group]) -> None:
        self.groups.append(groups)
        self.seen.append(
            (step, [g.task.id for g in groups], [[r.reward for r in g.rollouts] for g in groups])
        )

    def metrics(self) -> dict[str, Any]:
        return {"pool": len(self.pool)}

    def state_dict(self) -> dict[str, Any]:
        version, numbers, gauss = self.random.getstate()
        return {"random": [version, list(numbers), gauss], "seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        version, numbers, gauss = state["random"]
        self.random.setstate((version, tuple(numbers), gauss))
        self.seen = [(step, ids, rewards) for step, ids, rewards in state["seen"]]

    def save_state(self, folder: Path) -> None:
        (folder / "pool.txt").write_text(json.dumps([task.id for task in self.pool]))

    def load_state(self, folder: Path) -> None:
        assert json.loads((folder / "pool.txt").read_text()) == [task.id for task in self.pool]


def weights(engine: TrlEngine) -> dict[str, torch.Tensor]:
    """A copy of the policy's weights as they are now."""
    return {name: weight.detach().clone() for name, weight in engine.model.state_dict().items()}


def same(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    """Equal to the bit."""
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def records(run_dir: Path) -> list[dict[str, Any]]:
    """The lines of a run's log."""
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
