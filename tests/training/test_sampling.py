"""The sampler is an efficient way to the same distribution: checked against transformers' own loop."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from coevolve.training.sampling import ModelSampler, stream_seed

STOP, PAD = (1, 2), 0


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    shape = {"vocab_size": 40, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    return LlamaForCausalLM(LlamaConfig(**shape, num_attention_heads=4, num_key_value_heads=2)).eval()


def some_prompts(n: int, seed: int = 0) -> list[list[int]]:
    numbers = random.Random(seed)
    return [[numbers.randrange(3, 40) for _ in range(numbers.randrange(2, 20))] for _ in range(n)]


def one_by_one(model: Any, prompt: list[int], limit: int) -> tuple[int, ...]:
    """Greedy, no cache, no batch, no padding."""
    ids = list(prompt)
    for _ in range(limit):
        with torch.no_grad():
            ids.append(int(model(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
        if ids[-1] in STOP:
            break
    return tuple(ids[len(prompt) :])


def test_greedy_messages_are_those_of_the_plain_loop_whatever_the_batch(model: Any) -> None:
    prompts = some_prompts(13)
    sampler = ModelSampler(model, STOP, PAD, temperature=0, rows=5)
    limits = [3 + n % 9 for n in range(13)]
    got = sampler.generate(prompts, limits)
    assert [s.ids for s in got] == [one_by_one(model, p, n) for p, n in zip(prompts, limits)]


def test_going_on_from_the_cache_changes_nothing_over_several_turns(model: Any) -> None:
    prompts = some_prompts(9) * 2
    sampler = ModelSampler(model, STOP, PAD, temperature=0, rows=7)
    numbers = random.Random(1)
    for turn in range(4):
        got = sampler.generate(prompts, [8] * len(prompts))
        assert [s.ids for s in got] == [one_by_one(model, p, 8) for p in prompts], f"turn {turn}"
        grown = [[*p, *s.ids, *some_prompts(1, seed=n)[0]] for n, (p, s) in enumerate(zip(prompts, got))]
        prompts = numbers.sample(grown, len(grown) - 3)  # some have ended, and the order is another


def test_log_probabilities_are_those_of_the_model_at_that_temperature(model: Any) -> None:
    sampler = ModelSampler(model, STOP, PAD, temperature=0.7, seed=3)
    prompts = some_prompts(6)
    first = sampler.generate(prompts, [6] * 6)
    prompts += [[*p, *s.ids, 5, 6] for p, s in zip(prompts, first)]
    for prompt, sample in zip(prompts, [*first, *sampler.generate(prompts[6:], [6] * 6)]):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([[*prompt, *sample.ids]])).logits[0] / 0.7
        each = logits.log_softmax(-1)[len(prompt) - 1 : -1].gather(1, torch.tensor(sample.ids)[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(sample.logprobs), each, atol=1e-4, rtol=1e-4)


def test_samples_follow_the_distribution(model: Any) -> None:
    prompt = some_prompts(1)[0]
    with torch.no_grad():
        expected = model(input_ids=torch.tensor([prompt])).logits[0, -1].softmax(-1)
    got = ModelSampler(model, STOP, PAD, seed=5, rows=4000).generate([prompt] * 4000, [1] * 4000)
    counts = torch.bincount(torch.tensor([s.ids[0] for s in got]), minlength=40) / 4000
    assert float((counts - expected).abs().max()) < 0.03


def test_one_seed_one_stream_and_the_global_generator_is_left_alone(model: Any) -> None:
    prompts = some_prompts(5)
    before = torch.random.get_rng_state()
    one, same, other = (
        ModelSampler(model, STOP, PAD, seed=stream_seed(0, name)).generate(prompts, [9] * 5) for name in "aab"
    )
    assert one == same != other
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_end_token_is_kept_and_nothing_follows_it(model: Any) -> None:
    got = ModelSampler(model, tuple(range(1, 30)), PAD, seed=0).generate(some_prompts(40), [30] * 40)
    assert all(not set(s.ids[:-1]) & set(range(1, 30)) for s in got)
    assert any(len(s.ids) > 1 for s in got)


def test_a_model_with_a_sliding_window_is_sampled_too() -> None:
    torch.manual_seed(0)
    shape = {"vocab_size": 40, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    config = MistralConfig(**shape, num_attention_heads=4, num_key_value_heads=2, sliding_window=6)
    model = MistralForCausalLM(config).eval()
    sampler = ModelSampler(model, STOP, PAD, temperature=0)
    prompts = some_prompts(6) * 2
    got = sampler.generate(prompts, [8] * 12)
    assert [s.ids for s in got] == [one_by_one(model, p, 8) for p in prompts]


def test_training_mode_comes_back(model: Any) -> None:
    model.train()
    ModelSampler(model, STOP, PAD).generate([[5, 6]], [2])
    assert model.training
    model.eval()
