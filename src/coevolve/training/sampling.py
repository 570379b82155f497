"""Token sampling from a Hugging Face causal model in this process: training on CPU, and evaluation.

``transformers.generate`` prefills the whole history of every rollout at every turn.
:class:`ModelSampler` prefills each distinct prompt once (the K rollouts of a group share theirs), drops
rows that have ended, and goes on from cached keys and values when a prompt only extends what it has
already seen, which is what an agent's next step does.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import isnan
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache
from transformers.cache_utils import Cache

from coevolve.errors import NotANumberError
from coevolve.rollout.sampler import Sample
from coevolve.training.key_values import (
    Memory,
    RoomyLayer,
    attends_plainly,
    longest_prefix,
    recalled,
    rows_of,
)

_SHRINK = 0.6  # finished rows leave the batch once no more than this share is still going


def stream_seed(*names: object) -> int:
    """A 63-bit seed from names: the same on every machine, whatever PYTHONHASHSEED says."""
    digest = hashlib.sha256("/".join(str(name) for name in names).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


@dataclass(slots=True)
class _Batch:
    """Rows whose prompts have been run: ``logits`` ``[rows, vocabulary]`` are those of their next token."""

    ids: list[tuple[int, ...]]
    cache: Any
    seen: Tensor
    logits: Tensor


class ModelSampler:
    """Samples from ``model``; cached states serve one set of weights (see :meth:`forget`).

    Args:
        model: Not wrapped by DDP or the like.
        stop: Ids that end a message, e.g. end-of-message and end-of-text.
        pad: Id that fills holes; it is never attended to.
        temperature: Of the softmax; 0 is greedy, with log-probabilities 0.
        seed: Of this sampler's own generator; no global one is touched.
        rows: Rows decoded side by side, at most.
    """

    def __init__(
        self,
        model: nn.Module,
        stop: Collection[int],
        pad: int,
        *,
        temperature: float = 1.0,
        seed: int = 0,
        rows: int = 128,
    ) -> None:
        self.model = model
        self.pad = pad
        self.temperature = temperature
        self.rows = rows
        self.device = next(model.parameters()).device
        self._stop = torch.tensor(sorted(stop), device=self.device)
        self._generator = torch.Generator(device=self.device).manual_seed(seed)
        self._memories: list[Memory] = []
        config: Any = model.config
        base: Any = model.get_base_model() if hasattr(model, "peft_config") else model  # type: ignore[operator]
        # transformers renamed the argument during version 5
        self._cache_name = (
            "cache" if "cache" in inspect.signature(base.forward).parameters else "past_key_values"
        )
        self._roomy = attends_plainly(config)  # holes and rows of unequal age need that
        self._config = config

    def forget(self) -> None:
        """Drop cached keys and values; needed whenever the weights have changed."""
        self._memories = []

    def generate(self, prompts: Sequence[Sequence[int]], max_new_tokens: Sequence[int]) -> list[Sample]:
        """One message per prompt, in order, of 1 to ``max_new_tokens[i]`` ids, the stop id included.

        Log-probabilities are those of the distribution sampled from, at this temperature.

        Raises:
            NotANumberError: the model's logits are no numbers.
        """
        rows = [tuple(prompt) for prompt in prompts]
        known = {ids: (m, r) for m, memory in enumerate(self._memories) for r, ids in enumerate(memory.ids)}
        lengths = sorted({len(ids) for ids in known}, reverse=True)
        places = [longest_prefix(row, known, lengths) for row in rows]
        fresh = [i for i, place in enumerate(places) if place is None]
        going_on = [i for i, place in enumerate(places) if place is not None]
        old, self._memories = self._memories, []
        samples: dict[int, Sample] = {}
        with torch.inference_mode(), _evaluating(self.model):
            for part in (fresh, going_on):
                part.sort(key=lambda i: len(rows[i]))  # stable: like lengths side by side, little padding
                for start in range(0, len(part), self.rows):
                    chunk = part[start : start + self.rows]
                    state = self._begin([rows[i] for i in chunk], [places[i] for i in chunk], old)
                    for i, sample in zip(chunk, self._decode(state, [max_new_tokens[i] for i in chunk])):
                        samples[i] = sample
        return [samples[i] for i in range(len(rows))]

    def _begin(
        self, rows: list[tuple[int, ...]], places: list[tuple[int, int] | None], old: list[Memory]
    ) -> _Batch:
        """Run everything of ``rows`` but what lies in ``old``, each distinct prompt once."""
        distinct = list(dict.fromkeys(zip(rows, places)))
        index = {pair: n for n, pair in enumerate(distinct)}
        cache, seen = self._recall([place for _, place in distinct if place is not None], old)
        news = [row[len(old[place[0]].ids[place[1]]) if place else 0 :] for row, place in distinct]
        width = max(len(new) for new in news)
        ids = torch.full((len(news), width), self.pad, device=self.device)
        mask = torch.zeros((len(news), width), dtype=torch.long, device=self.device)
        for n, new in enumerate(news):
            ids[n, width - len(new) :] = torch.tensor(new, device=self.device)
            mask[n, width - len(new) :] = 1
        before = seen.sum(1, keepdim=True) if seen is not None else 0
        seen = mask if seen is None else torch.cat([seen, mask], 1)
        logits, cache = self._forward(ids, seen, (mask.cumsum(1) - 1).clamp(min=0) + before, cache)
        pick = torch.tensor([index[pair] for pair in zip(rows, places)], device=self.device)
        if len(distinct) < len(rows):
            cache.batch_select_indices(pick)
        return _Batch(rows, cache, seen[pick], logits[pick])

    def _recall(self, places: list[tuple[int, int]], old: list[Memory]) -> tuple[Any, Tensor | None]:
        """A cache that holds the remembered rows ``places``, or an empty one where there are none."""
        if places:
            return recalled(places, old, self.device)
        if self._roomy:
            return Cache(layer_class_to_replicate=RoomyLayer), None
        return DynamicCache(config=self._config), None

    def _forward(self, ids: Tensor, seen: Tensor, positions: Tensor, cache: Any) -> tuple[Tensor, Any]:
        output = self.model(
            input_ids=ids,
            attention_mask=seen,
            position_ids=positions,
            use_cache=True,
            logits_to_keep=1,
            **{self._cache_name: cache},
        )
        return output.logits[:, -1].float(), cache

    def _decode(self, batch: _Batch, limits: Sequence[int]) -> list[Sample]:
        if bool(torch.isnan(batch.logits).any()):
            raise NotANumberError("the policy's logits are nan")
        total = len(batch.ids)
        tokens: list[list[int]] = [[] for _ in range(total)]
        logprobs: list[list[float]] = [[] for _ in range(total)]
        rows = list(range(total))  # which row of the batch each row of the cache is
        going = torch.ones(total, dtype=torch.bool, device=self.device)
        cache, logits = batch.cache, batch.logits
        left = torch.tensor(limits, device=self.device)
        limit, start = max(limits), batch.seen.shape[1]
        seen = torch.cat([batch.seen, batch.seen.new_zeros(total, limit)], 1)
        positions = batch.seen.sum(1, keepdim=True)
        for step in range(limit):
            token, logprob = self._sample(logits)
            for row, goes, value, lp in zip(rows, going.tolist(), token.tolist(), logprob.tolist()):
                if goes:
                    tokens[row].append(value)
                    logprobs[row].append(lp)
            going &= ~torch.isin(token, self._stop) & (left > step + 1)
            alive = int(going.sum())
            slots = start + step
            if alive == 0:
                self._remember(cache, seen[:, :slots], [batch.ids[r] + tuple(tokens[r][:-1]) for r in rows])
                break
            if alive <= _SHRINK * len(rows):
                keep, ended = going.nonzero()[:, 0], (~going).nonzero()[:, 0]
                done = [rows[n] for n in ended.tolist()]
                self._remember(
                    rows_of(cache, ended) if self._roomy else None,
                    seen[ended, :slots],
                    [batch.ids[r] + tuple(tokens[r][:-1]) for r in done],
                )
                cache.batch_select_indices(keep)
                rows = [rows[n] for n in keep.tolist()]
                seen, positions, token = seen[keep], positions[keep], token[keep]
                left, going = left[keep], going[keep]
            seen[:, slots] = going
            fed = torch.where(going, token, self.pad)[:, None]
            logits, cache = self._forward(fed, seen[:, : slots + 1], positions + step, cache)
        if any(isnan(sum(row)) for row in logprobs):
            raise NotANumberError("the policy's log-probabilities are nan")
        return [Sample(tuple(t), tuple(p)) for t, p in zip(tokens, logprobs)]

    def _sample(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        if self.temperature == 0:
            token = logits.argmax(-1)
            return token, torch.zeros_like(token, dtype=torch.float32)
        logprobs = torch.log_softmax(logits / self.temperature, -1)
        # One uniform number per row through the distribution function: torch.multinomial draws one per
        # entry of the vocabulary, a tenth of a small model's sampling time.
        heights = logprobs.exp().cumsum(-1)
        level = torch.rand(len(logits), 1, generator=self._generator, device=self.device) * heights[:, -1:]
        token = torch.searchsorted(heights, level, right=True).clamp(max=logits.shape[-1] - 1)
        return token[:, 0], logprobs.gather(1, token)[:, 0]

    def _remember(self, cache: Any, seen: Tensor, ids: list[tuple[int, ...]]) -> None:
        """The last token of a row was sampled but never run, so ``ids`` must not hold it."""
        if self._roomy:
            self._memories.append(Memory(cache, seen, ids))


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """No dropout and no gradient checkpointing while sampling; the mode before comes back."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
