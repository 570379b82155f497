"""Promises of the supervised warm-up: it learns the policy's own tokens, under one schedule."""

import torch

from coevolve.models.tiny import TinyShape, build_model, build_tokenizer
from coevolve.training.warmup import MuonAndAdamW, WarmupRecipe, warm_up
from coevolve.types import Tokens

SHAPE = TinyShape(vocabulary=300, width=32, layers=1, heads=2, hidden=48)
WORDS = ("red", "green", "blue", "white", "black")


def _demonstrations(tokenizer) -> list[Tokens]:
    found = []
    for word in WORDS:
        prompt = tuple(tokenizer(f"say {word}").input_ids)
        own, others = tokenizer(f"{word}<|end|>").input_ids, tokenizer("noise").input_ids
        ids, mask = (*own, *others), (1,) * len(own) + (0,) * len(others)
        found.append(Tokens(prompt, ids, mask, (0.0,) * len(ids)))
    return found


def test_warm_up_lowers_the_loss_of_the_policys_own_tokens() -> None:
    tokenizer = build_tokenizer([f"say {word}" for word in WORDS], SHAPE)
    torch.manual_seed(0)
    model = build_model(tokenizer, SHAPE)
    recipe = WarmupRecipe(steps=120, schedule=120, batch=5, warmup=5)
    history = warm_up(model, tokenizer, _demonstrations(tokenizer), recipe)
    losses = [float(entry["loss"]) for entry in history if "loss" in entry]
    assert losses[-1] < losses[0]
    with torch.no_grad():
        for d in _demonstrations(tokenizer):
            ids = torch.tensor([[*d.prompt, *d.ids]])
            logits = model(ids).logits[0, len(d.prompt) - 1 : -1]
            said = logits.argmax(-1)
            wanted = [i for i, m in zip(d.ids, d.mask, strict=True) if m]
            assert said[: len(wanted)].tolist() == wanted


def test_one_schedule_reaches_both_optimisers_also_after_a_reload() -> None:
    tokenizer = build_tokenizer(["a b"], SHAPE)
    model = build_model(tokenizer, SHAPE)
    optimizer = MuonAndAdamW(model, WarmupRecipe())
    optimizer.load_state_dict(optimizer.state_dict())  # what accelerate does when it wraps one
    before = [p.detach().clone() for p in model.parameters()]
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    model(torch.tensor([[5, 6, 7]]), labels=torch.tensor([[5, 6, 7]])).loss.backward()
    optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    for group in optimizer.param_groups:
        group["lr"] = 0.1
    optimizer.step()
    changed = [not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True)]
    assert all(changed)
