"""Small real tokenizers with real chat templates, and a sampler that says what a test wrote down."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from coevolve.config import RolloutConfig
from coevolve.rollout.chat import Chat
from coevolve.rollout.sampler import Sample
from coevolve.types import Json, ToolSpec, World
from keyvalue import TOOLS as NARROW
from keyvalue import KeyValue

CORPUS = [
    "[put(key='color', value='red'), get(key='shape')] stored color no key shape <tool_call>",
    '{"name": "put", "arguments": {"key": "color", "value": "blue"}} Put red under color, then read it.',
    "0 1 2 3 4 5 6 7 8 9 part abcdefghijklmnopqrstuvwxyz",
] * 3

QWEN = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
QWEN_TAGS = ("<tool_call>", "</tool_call>", "<think>", "</think>", "<tool_response>", "</tool_response>")
LLAMA = (
    "<|begin_of_text|>",
    "<|eot_id|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eom_id|>",
    "<|python_tag|>",
)
TINY = ("<|pad|>", "<|end|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|system|>")

TINY_TEMPLATE = (
    "{#- coevolve: tools=none calls=python -#}"
    "{%- for m in messages -%}<|{{ m.role }}|>{{ m.content }}<|end|>{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"
)
SMOLLM2_TEMPLATE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    "<|im_end|>\n' }}"
    "{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def published(name: str) -> str:
    """A model's own chat template, as TRL ships it for comparison (chat_templates/NAME.jinja)."""
    spec = importlib.util.find_spec("trl")
    assert spec is not None and spec.submodule_search_locations
    return (Path(spec.submodule_search_locations[0]) / "chat_templates" / f"{name}.jinja").read_text()


def _trained(special: Sequence[str], tags: Sequence[str], bijective: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token=None if bijective else "<unk>"))
    if bijective:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
    else:
        tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.decoder = decoders.Metaspace()
        alphabet = []
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=[*special, *([] if bijective else ["<unk>"])],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens([AddedToken(tag, special=False) for tag in tags])
    return tokenizer


@cache
def tokenizer(
    template: str,
    special: tuple[str, ...],
    end: str,
    tags: tuple[str, ...] = (),
    bijective: bool = True,
) -> PreTrainedTokenizerFast:
    """A BPE trained on a handful of lines; not bijective means lower-cased, NFKC, unknown characters."""
    made = PreTrainedTokenizerFast(
        tokenizer_object=_trained(special, tags, bijective),
        eos_token=end,
        bos_token=special[0],
        unk_token=None if bijective else "<unk>",
    )
    made.chat_template = template
    return made


def qwen(name: str = "qwen2_5") -> PreTrainedTokenizerFast:
    return tokenizer(published(name), QWEN, "<|im_end|>", QWEN_TAGS)


def llama(name: str = "llama3_1") -> PreTrainedTokenizerFast:
    return tokenizer(published(name), LLAMA, "<|eot_id|>")


def tiny(bijective: bool = True) -> PreTrainedTokenizerFast:
    return tokenizer(TINY_TEMPLATE, TINY, "<|end|>", bijective=bijective)


def every_chat(limits: RolloutConfig | None = None) -> dict[str, Chat]:
    """One conversation partner per kind of template that the project meets."""
    made = {
        "tiny": tiny(),
        "tiny, not bijective": tiny(bijective=False),
        "smollm2": tokenizer(SMOLLM2_TEMPLATE, QWEN, "<|im_end|>"),
        "qwen2.5": qwen("qwen2_5"),
        "qwen3": qwen("qwen3"),
        "qwen3-2507": qwen("qwen3_instruct_2507"),
        "llama3.1": llama("llama3_1"),
        "llama3": llama("llama3"),
        "gemma": tokenizer(
            published("gemma"), ("<bos>", "<start_of_turn>", "<end_of_turn>"), "<end_of_turn>"
        ),
    }
    return {name: Chat(tokenizer, limits) for name, tokenizer in made.items()}


@dataclass
class Scripted:
    """A sampler whose policy is a script: one list of messages per rollout, in order of arrival.

    A message is a text, ended with the chat's end token; with a trailing '…' it is left open. It also
    holds the agent loop to its word: a prompt either is new or extends what was said before it.
    """

    chat: Chat
    scripts: Sequence[Sequence[str]]
    one_by_one: bool = False
    """Emit character by character: ids that no tokenizer would give for the text."""
    said: list[tuple[tuple[int, ...], int, int]] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)

    def generate(self, prompts: Sequence[Sequence[int]], max_new_tokens: Sequence[int]) -> list[Sample]:
        self.batches.append(len(prompts))
        return [self._answer(tuple(p), m) for p, m in zip(prompts, max_new_tokens, strict=True)]

    def _answer(self, prompt: tuple[int, ...], room: int) -> Sample:
        assert room >= 1
        known = [n for n, (prefix, _, _) in enumerate(self.said) if prompt[: len(prefix)] == prefix]
        if known:
            at = max(known, key=lambda n: len(self.said[n][0]))
        else:
            self.said.append(((), len(self.said), 0))
            at = len(self.said) - 1
        _, script, message = self.said[at]
        ids = self._ids(self.scripts[script][message])[:room]
        self.said[at] = ((*prompt, *ids), script, message + 1)
        return Sample(tuple(ids), tuple(-0.5 - n / 100 for n in range(len(ids))))

    def _ids(self, text: str) -> list[int]:
        body = text.removesuffix("…")
        ids = spelt_out(self.chat, body) if self.one_by_one else encoded(self.chat, body)
        ids = ids if text.endswith("…") else [*ids, self.chat.end_id]
        ends = [at + 1 for at, number in enumerate(ids) if number in self.chat.stop_ids]
        return ids[: ends[0]] if ends else ids


def encoded(chat: Chat, text: str) -> list[int]:
    """Ids as the tokenizer gives them."""
    return list(chat.tokenizer.encode(text, add_special_tokens=False))


def spelt_out(chat: Chat, text: str) -> list[int]:
    """One id per character, as a policy may well write and no tokenizer would."""
    tokenizer: Any = chat.tokenizer
    space = "▁" if "▁" in tokenizer.get_vocab() else "Ġ"
    names = [space if character == " " else character for character in text]
    return list(tokenizer.convert_tokens_to_ids(names))


def spelled(chat: Chat, ids: Sequence[int]) -> str:
    """The ids as text, control tokens included."""
    return str(chat.tokenizer.decode(list(ids), skip_special_tokens=False))


def squeezed(text: str) -> str:
    """For tokenizers that change case and spaces."""
    return re.sub(r"\s", "", text).lower()


def _open_keys(tool: ToolSpec) -> ToolSpec:
    properties = tool.parameters["properties"]
    assert isinstance(properties, dict)
    free: dict[str, Json] = {**properties, "key": {"type": "string", "description": "Any text."}}
    return replace(tool, parameters={**tool.parameters, "properties": free})


TOOLS = tuple(map(_open_keys, NARROW))


class Store(KeyValue):
    """The key-value environment, any text being a key."""

    def offered(self, world: World) -> Sequence[ToolSpec]:
        return TOOLS


ARGUMENT: dict[str, Json] = {"type": "string", "description": "Anything."}
ANYTHING = ToolSpec(
    "anything",
    "Takes whatever JSON there is.",
    {
        "type": "object",
        "properties": {
            "text": ARGUMENT,
            "number": {"type": "number"},
            "count": {"type": "integer"},
            "flag": {"type": "boolean"},
            "items": {"type": "array", "items": {}},
            "from": {"type": "object"},
        },
        "required": [],
    },
)
OFFERED = (*TOOLS, ANYTHING)
