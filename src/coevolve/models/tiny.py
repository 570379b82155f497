"""The built-in tiny policy: a Llama of about two million parameters with a tokenizer of its own.

It stands in for an instruct model where none can be run: trained from scratch by supervised warm-up
(:mod:`coevolve.training.warmup`) on verified tasks from unguided exploration of train worlds. Its
chat template renders no tool documentation; it has learned the tools.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

END = "<|end|>"
PAD = "<|pad|>"
ROLES = ("<|user|>", "<|assistant|>", "<|tool|>", "<|system|>")

CHAT_TEMPLATE = (
    "{#- coevolve: tools=none calls=python -#}"
    "{%- for message in messages -%}"
    "<|{{ message.role }}|>{{ message.content }}<|end|>"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"
)

# A value must fall into the same tokens in the user's sentence and in the call, or the policy cannot
# learn to copy it. So a quote never joins the value beside it, digits come in pairs and never take the
# space before them, and only the syntax of a call may join a quote.
_PIECES = r"=\[?'|\(?\['|',|'\]\)?|'\)|\)\]|\(\)|', '| ?[A-Za-z]+(?:_[A-Za-z]+)*|\d{1,2}|[^A-Za-z\d]"


@dataclass(frozen=True, slots=True)
class TinyShape:
    """The architecture; part of the key under which a built policy is cached."""

    vocabulary: int = 2048
    width: int = 192
    layers: int = 4
    heads: int = 6
    hidden: int = 512
    context: int = 1024


def build_tokenizer(texts: Iterable[str], shape: TinyShape) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE of ``shape.vocabulary`` entries; reversible for any text."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=shape.vocabulary,
        special_tokens=[PAD, END, *ROLES],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=PAD, additional_special_tokens=list(ROLES)
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def build_model(tokenizer: PreTrainedTokenizerFast, shape: TinyShape) -> LlamaForCausalLM:
    """A freshly initialised model; torch's global seed decides the weights."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=shape.width,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            num_key_value_heads=shape.heads,
            intermediate_size=shape.hidden,
            max_position_embeddings=shape.context,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            # Small models forget slowly decaying positions; a short base keeps copying exact.
            rope_theta=10_000.0,
        )
    )
