"""A model in this process, through transformers: one that is loaded for it, or the policy itself.

torch is imported when a model is made, not with this module.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import TemplateError

from coevolve.config import LlmConfig
from coevolve.errors import ConfigError
from coevolve.llm.base import Ledger, Message, NoToolsError, OutageError, Reply, TooLongError
from coevolve.llm.faults import short
from coevolve.llm.requests import readable
from coevolve.llm.spending import LEAST_ROOM, Meter
from coevolve.types import Json, ToolSpec

_SEEDS = 2**31


class LocalModel:
    """A causal language model with a chat template, asked for one answer at a time.

    Tools are a matter of the caller's text protocol, and a JSON schema is not enforced. Sampling draws from
    a generator of its own, seeded by each request: no global random state is touched, and the same request
    gets the same answer. Thread-safe; threads take turns. Nothing may train the model meanwhile.

    Args:
        model: transformers' model, bare or with a PEFT adapter; used where it lies.
        tokenizer: its tokenizer.
        config: temperature, completion tokens, deadline, attempts and price are used here.
        name: for lineage and cache keys. Whoever changes the weights changes it (it may be set).

    Raises:
        ConfigError: a tokenizer without a chat template or an end token.
    """

    native_tools = False
    concurrency = 1

    def __init__(self, model: Any, tokenizer: Any, config: LlmConfig, name: str) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.config = config
        self.name = name
        self.meter = Meter.of(config)
        self._lock = threading.Lock()
        if not tokenizer.chat_template:
            raise ConfigError(
                f"llm.model: {name} has no chat template, so it cannot converse; use an instruct model"
            )
        self._stops = _end_ids(model, tokenizer)
        if not self._stops:
            raise ConfigError(f"llm.model: {name} has no end token, so its answers would never end")
        self._control = _control_tokens(tokenizer)
        base = model.get_base_model() if hasattr(model, "peft_config") else model
        # transformers renamed the argument during version 5
        self._cache = "cache" if "cache" in inspect.signature(base.forward).parameters else "past_key_values"

    @classmethod
    def load(cls, config: LlmConfig) -> LocalModel:
        """``config.model``: a folder, a Hugging Face id, or ``tiny``; on the GPU where there is one.

        Raises:
            ConfigError: it cannot be loaded, or the packages for it are missing.
        """
        try:
            import torch

            from coevolve.models.loading import load_policy

            policy = load_policy(config.model, "bf16")
        except ImportError as error:
            raise ConfigError(
                f"llm.model: {config.model!r} runs in this process, which needs the package {error.name}; "
                "pip install 'coevolve[train]', or set llm.base_url to an endpoint"
            ) from None
        except ConfigError as error:
            raise ConfigError(f"llm.{error}, or set llm.base_url to an endpoint") from None
        model = policy.model.to("cuda" if torch.cuda.is_available() else "cpu")
        return cls(model, policy.tokenizer, config, config.model)

    def complete(
        self,
        messages: Sequence[Message],
        *,
        stage: str,
        ledger: Ledger,
        tools: Sequence[ToolSpec] = (),
        schema: Mapping[str, Json] | None = None,
        seed: int = 0,
    ) -> Reply:
        """See :meth:`coevolve.llm.base.LLM.complete`."""
        if tools:
            raise NoToolsError(f"{self.name} takes no native tools; ask by the text protocol")
        with self._lock:
            prompt = self._encoded(messages, ledger)
            attempts = self.config.attempts if self.config.temperature else 1
            for attempt in range(attempts):
                reply = self._answer(prompt, stage, ledger, (seed + 1_000_003 * attempt) % _SEEDS)
                if reply.text.strip():
                    self.meter.answered(ledger, stage)
                    return reply
                ledger.fault("empty_content")
        raise OutageError(f"{self.name} answered nothing in {attempts} attempts (llm.attempts)")

    def _answer(self, prompt: list[int], stage: str, ledger: Ledger, seed: int) -> Reply:
        room = self.meter.room(ledger, len(prompt))
        window = getattr(self.model.config, "max_position_embeddings", None)
        if window is not None and (room := min(room, window - len(prompt))) < LEAST_ROOM:
            ledger.fault("context_too_long")
            raise TooLongError(
                f"{self.name} can read {window} tokens, and this prompt has {len(prompt)}; lower "
                "explore.context_tokens or explore.calls, or use a model with a longer context"
            )
        began = time.monotonic()
        ids, ended = self._generate(prompt, room, seed, began + self._seconds(ledger))
        self.meter.used(ledger, stage, len(prompt), len(ids))
        self.meter.waited(ledger, stage, time.monotonic() - began)
        if ended is None:
            ledger.must_have_left()  # it may have been the ledger's time that ran out
            ledger.fault("timeout")
            raise OutageError(
                f"{self.name} had written {len(ids)} tokens after {self.config.seconds:g} s; raise "
                "llm.seconds or lower llm.tokens"
            )
        text = str(self.tokenizer.decode(ids, skip_special_tokens=True))
        finish = "stop" if ended else "length"
        return Reply(text, finish=finish, prompt_tokens=len(prompt), completion_tokens=len(ids))

    def _generate(
        self, prompt: list[int], room: int, seed: int, deadline: float
    ) -> tuple[list[int], bool | None]:
        """New ids, and whether they end by themselves; None where the deadline ended them."""
        import torch
        from transformers import DynamicCache

        device = next(self.model.parameters()).device
        generator = torch.Generator(device=device).manual_seed(seed)
        cache = DynamicCache(config=self.model.config)
        was_training, ids = self.model.training, list[int]()
        self.model.eval()
        try:
            with torch.inference_mode():
                fed = torch.tensor([prompt], device=device)
                while len(ids) < room:
                    if time.monotonic() > deadline:
                        return ids, None
                    seen = torch.ones((1, len(prompt) + len(ids)), dtype=torch.long, device=device)
                    output = self.model(
                        input_ids=fed,
                        attention_mask=seen,
                        use_cache=True,
                        logits_to_keep=1,
                        **{self._cache: cache},
                    )
                    logits = output.logits[0, -1].float()
                    if self.config.temperature:
                        odds = torch.softmax(logits / self.config.temperature, -1)
                        token = int(torch.multinomial(odds, 1, generator=generator))
                    else:
                        token = int(logits.argmax())
                    ids.append(token)
                    if token in self._stops:
                        return ids, True
                    fed = torch.tensor([[token]], device=device)
                return ids, False
        finally:
            self.model.train(was_training)

    def _seconds(self, ledger: Ledger) -> float:
        limit = ledger.limits.seconds
        left = float("inf") if limit is None else limit - ledger.total("seconds")
        return min(self.config.seconds, left)

    def _encoded(self, messages: Sequence[Message], ledger: Ledger) -> list[int]:
        """Ids of the conversation up to the model's turn.

        Raises:
            OutageError: the chat template refuses the conversation.
        """
        plain = [self._plain(message, ledger) for message in messages]
        try:
            text = self._rendered(plain)
        except TemplateError:
            try:  # a template that knows neither a system's message nor two of one role in a row
                text = self._rendered(_alternating(plain))
            except TemplateError as error:
                ledger.fault("refused")
                raise OutageError(
                    f"the chat template of {self.name} refuses the conversation: {short(str(error))}"
                ) from None
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _rendered(self, messages: list[dict[str, str]]) -> str:
        return str(self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))

    def _plain(self, message: Message, ledger: Ledger) -> dict[str, str]:
        """Role and text; a control token that a tool or a user wrote becomes ordinary text."""
        content = readable(str(message.get("content") or ""))
        for token in self._control:
            if token in content:
                ledger.fault("control_token")
                content = content.replace(token, f"{token[0]} {token[1:]}")
        return {"role": str(message["role"]), "content": content}


def _alternating(messages: list[dict[str, str]]) -> list[dict[str, str]]:
    """Only ``user`` and ``assistant``, in turns, the same words in the same order."""
    merged: list[dict[str, str]] = []
    for message in messages:
        role = "assistant" if message["role"] == "assistant" else "user"
        if merged and merged[-1]["role"] == role:
            merged[-1]["content"] += "\n\n" + message["content"]
        else:
            merged.append({"role": role, "content": message["content"]})
    return merged


def _end_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Ids that end an answer: the tokenizer's, and those that the model's generation config names."""
    named = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    found = [tokenizer.eos_token_id, *(named if isinstance(named, list | tuple) else [named])]
    return frozenset(id for id in found if id is not None)


def _control_tokens(tokenizer: Any) -> tuple[str, ...]:
    """Texts that the tokenizer reads as control tokens, the longest first."""
    added = getattr(tokenizer, "added_tokens_decoder", {}).values()
    found = {str(token.content) for token in added if token.special} | set(tokenizer.all_special_tokens)
    return tuple(sorted((text for text in found if len(text) > 1), key=lambda text: (-len(text), text)))
