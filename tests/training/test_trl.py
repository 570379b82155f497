"""Training by TRL on a real, small policy and a real, small environment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import small
import torch
from small import records, same, weights
from transformers import Qwen3Config, Qwen3ForCausalLM

from coevolve.config import Config
from coevolve.errors import ConfigError, RunError, TrainingError
from coevolve.rollout.agent import demonstration, run
from coevolve.rollout.chat import Chat
from coevolve.training.demonstrate import pad_tokens
from coevolve.training.trl import TrlEngine, arguments
from coevolve.types import Outcome
from keyvalue import KeyValue, put


def start(policy: Path, run_dir: Path, config: Config, model: Any = None, **more: Any) -> TrlEngine:
    """An engine on a fresh copy of the policy."""
    loaded, tokenizer = small.load(policy)
    environment = more.pop("environment", KeyValue())
    chat = Chat(tokenizer, config.rollout)
    return TrlEngine(model or loaded, tokenizer, chat, environment, config, run_dir, **more)


def test_steps_draw_observe_update_and_leave_a_record(policy: Path, tmp_path: Path) -> None:
    engine = start(policy, tmp_path, small.config(steps=3))
    before, source, told = weights(engine), small.ListSource(small.tasks()), []
    engine.train(source, progress=lambda step, figures: told.append((step, figures)))
    assert not same(before, weights(engine))
    assert [step for step, _, _ in source.seen] == [1, 2, 3]
    for groups in source.groups:
        assert [len(g.rollouts) for g in groups] == [4] * 4
        for group in groups:
            assert all(r.task == group.task.id for r in group.rollouts)
    lines = records(tmp_path)
    assert [line["step"] for line in lines] == [step for step, _ in told] == [1, 2, 3]
    for line, (_, _, rewards) in zip(lines, source.seen):
        assert line["reward"] == pytest.approx(sum(map(sum, rewards)) / 16)
        assert line["solved"] + line["failed"] == 16 and line["invalid"] == 0
        assert len(line["group_std"]) == 4 and 0 <= line["zero_variance"] <= 1
        assert line["source"] == {"pool": 49}
        assert {"rollout", "observe", "score", "update"} <= line["seconds"].keys()
        assert line["grad_norm"] > 0 and line["learning_rate"] == 1e-3
    assert engine.resume_point().step == 3  # the last step has a checkpoint, wherever it falls


def test_training_gets_better_at_its_task(policy: Path, tmp_path: Path) -> None:
    engine = start(policy, tmp_path, small.config(steps=22, train={"group_size": 8, "beta": 0.0}))
    sampler = engine.sampler(1.0)
    rates = []
    for task in small.tasks()[:7]:
        found = run([task] * 64, KeyValue(), engine.chat, sampler, engine.config.rollout)
        rates.append((sum(r.reward for r in found) / 64, task))
    before, undecided = min(rates, key=lambda pair: abs(pair[0] - 0.4))
    engine.train(small.ListSource([undecided]))
    rewards = [line["reward"] for line in records(tmp_path)]
    assert sum(rewards[-4:]) / 4 > before + 0.1


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(policy: Path, tmp_path: Path) -> None:
    got = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        engine = start(policy, tmp_path / name, small.config(seed=seed))
        engine.train(small.ListSource(small.tasks()))
        got.append(weights(engine))
    assert same(got[0], got[1]) and not same(got[0], got[2])


def test_micro_batches_change_memory_not_the_step(policy: Path, tmp_path: Path) -> None:
    """One step with plain SGD, at once and in four passes, demonstrations included."""
    got = []
    for micro in (0, 4):
        train = {"micro_batch": micro, "demonstrate": 0.5, "extra": {"optim": "sgd"}, "learning_rate": 0.1}
        engine = start(policy, tmp_path / str(micro), small.config(steps=1, train=train))
        engine.train(small.ListSource(small.tasks(), seed=1))
        got.append(weights(engine))
    for name, weight in got[0].items():
        torch.testing.assert_close(weight, got[1][name], atol=2e-6, rtol=1e-4)


def test_without_kl_no_reference_is_loaded(policy: Path, tmp_path: Path) -> None:
    engine = start(policy, tmp_path, small.config(train={"beta": 0.0}))
    trainer = engine._trainer(small.ListSource(small.tasks()), 1, None)
    assert trainer.ref_model is None


def test_a_model_made_in_memory_is_saved_so_that_kl_has_a_reference(policy: Path, tmp_path: Path) -> None:
    model, _ = small.load(policy)
    model.config._name_or_path = ""
    engine = start(policy, tmp_path, small.config(), model=model)
    before = weights(engine)
    engine.train(small.ListSource(small.tasks()))
    kept, _ = small.load(tmp_path / "model")
    assert same(before, kept.state_dict())
    assert records(tmp_path)[1]["kl"] > 0


@pytest.mark.parametrize("adapter", ["none", "lora"])
def test_a_qwen3_takes_two_full_steps(adapter: str, policy: Path, tmp_path: Path) -> None:
    _, tokenizer = small.load(policy)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 16}
    torch.manual_seed(0)
    config = Qwen3Config(vocab_size=len(tokenizer), **shape, num_attention_heads=2, num_key_value_heads=1)
    model = Qwen3ForCausalLM(config)
    chosen = small.config(adapter=adapter, lora={"rank": 4}, train={"demonstrate": 0.1})
    engine = start(policy, tmp_path, chosen, model=model)
    base = {name: w.detach().clone() for name, w in model.state_dict().items() if "lora" not in name}
    engine.train(small.ListSource(small.tasks()))
    assert [line["step"] for line in records(tmp_path)] == [1, 2]
    now = {
        name.replace("base_model.model.", "").replace(".base_layer", ""): w
        for name, w in weights(engine).items()
    }
    assert same(base, {name: now[name] for name in base}) == (adapter == "lora")
    assert records(tmp_path)[1]["kl"] > 0
    assert len(engine.sampler().generate([[5, 6, 7]], [4])[0].ids) > 0


def nll(engine: TrlEngine, shown: list[Any]) -> float:
    ids, attention, mask, after = pad_tokens(shown, engine.tokenizer.pad_token_id)
    with torch.no_grad():
        logits = engine.model(input_ids=ids, attention_mask=attention).logits[:, -after - 1 : -1]
    each = torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, -after:], reduction="none")
    return float((each * mask).sum() / mask.sum())


def hopeless(policy: Path, tmp_path: Path, weight: float) -> tuple[float, float]:
    """Train an untaught model, which solves nothing; NLL of the solutions before and after."""
    taught, _ = small.load(policy)
    torch.manual_seed(0)
    model = type(taught)(taught.config)
    model.config._name_or_path = ""
    train = {"demonstrate": weight, "learning_rate": 3e-3}
    engine = start(policy, tmp_path, small.config(steps=3, train=train), model=model)
    shown = [demonstration(task, engine.chat, KeyValue()) for task in small.tasks()[:7]]
    before = nll(engine, shown)
    engine.train(small.ListSource(small.tasks()))
    return before, nll(engine, shown)


def test_a_demonstration_raises_the_likelihood_of_the_solution(policy: Path, tmp_path: Path) -> None:
    before, after = hopeless(policy, tmp_path / "on", 1.0)
    assert after < before - 0.3
    lines = records(tmp_path / "on")
    assert [line["demonstrations"] for line in lines] == [4, 4, 4]
    assert lines[0]["demonstration_loss"] == pytest.approx(before, abs=1.0)
    before, after = hopeless(policy, tmp_path / "off", 0.0)
    assert after == pytest.approx(before, abs=0.2)
    assert "demonstrations" not in records(tmp_path / "off")[0]


class AllOnce(small.ListSource):
    """Draws every task once."""

    def draw(self, n: int) -> list[Any]:
        assert n == len(self.pool)
        return self.pool


def test_a_demonstration_is_w_over_p_times_the_mean_nll(policy: Path, tmp_path: Path) -> None:
    losses = []
    for weight in (0.0, 0.8):
        engine = start(policy, tmp_path / str(weight), small.config(steps=1, train={"demonstrate": weight}))
        pool = [*small.untaught()[:2], *(t for t in small.tasks()[:14] if t.turns == ("Say color.",))]
        source = AllOnce(pool)
        shown_before = {t.id: nll(engine, [demonstration(t, engine.chat, KeyValue())]) for t in pool}
        engine.train(source)
        groups = source.groups[0]
        failed = [g.task.id for g in groups if all(r.outcome is Outcome.FAILED for r in g.rollouts)]
        losses.append(records(tmp_path / str(weight))[0]["loss"])
    assert 0 < len(failed) < 4
    expected = 0.8 / 4 * sum(shown_before[task] for task in failed)
    assert losses[1] - losses[0] == pytest.approx(expected, rel=1e-3)


def test_where_no_group_failed_altogether_demonstrations_change_not_a_bit(
    policy: Path, tmp_path: Path
) -> None:
    easy = [task for task in small.tasks() if task.turns == ("Say color.",)]
    got = []
    for weight in (0.0, 1.0):
        engine = start(policy, tmp_path / str(weight), small.config(train={"demonstrate": weight}))
        source = small.ListSource(easy)
        engine.train(source)
        assert all(any(r.outcome is Outcome.SOLVED for r in g.rollouts) for gs in source.groups for g in gs)
        got.append(weights(engine))
    assert same(*got)


def test_an_outage_of_some_rollouts_feeds_neither_gradient_nor_reward(policy: Path, tmp_path: Path) -> None:
    environment = KeyValue()
    environment.outages = 16 + 3
    engine = start(policy, tmp_path, small.config(steps=1), environment=environment)
    engine.train(small.ListSource(small.tasks(), seed=1))
    (line,) = records(tmp_path)
    assert line["invalid"] == 3 and line["retried"] == 16 and line["stops"]["infrastructure"] == 3
    assert line["reward"] == pytest.approx(line["solved"] / 13)


def test_a_total_outage_stops_the_run_and_says_what_broke(policy: Path, tmp_path: Path) -> None:
    environment = KeyValue()
    environment.outages = 10**6
    engine = start(policy, tmp_path, small.config(), environment=environment)
    before = weights(engine)
    with pytest.raises(TrainingError, match=r"step 1: all 16 rollouts are invalid .*the store is down"):
        engine.train(small.ListSource(small.tasks()))
    assert same(before, weights(engine))


def test_a_first_step_without_any_reward_is_said_loudly(policy: Path, tmp_path: Path) -> None:
    told: list[str] = []
    impossible = [replace(task, solution=((),) * len(task.turns), turns=("Sing.",)) for task in small.tasks()]
    impossible = [replace(task, solution=((put("zzz"),),)) for task in impossible]
    engine = start(policy, tmp_path, small.config(), notice=told.append)
    engine.train(small.ListSource(impossible))
    assert [text for text in told if "not one of 16 rollouts earned any reward" in text] == told
    assert told[0].startswith("step 1:") and len(told) == 1


def test_a_loss_that_is_no_number_stops_the_run_and_names_the_step(policy: Path, tmp_path: Path) -> None:
    class Poisoned(small.ListSource):
        def observe(self, step: int, groups: Any) -> None:
            super().observe(step, groups)
            if step == 2:
                with torch.no_grad():
                    engine.model.get_input_embeddings().weight.fill_(float("nan"))

    engine = start(policy, tmp_path, small.config(steps=3, checkpoint={"every": 1}))
    with pytest.raises(TrainingError, match="step 2: the loss is nan"):
        engine.train(Poisoned(small.tasks()))
    assert engine.resume_point().step == 1


def test_a_gradient_that_is_no_number_leaves_the_weights_alone(policy: Path, tmp_path: Path) -> None:
    engine = start(policy, tmp_path, small.config(steps=1))
    before = weights(engine)
    engine.model.get_output_embeddings().weight.register_hook(lambda grad: grad * float("inf"))
    with pytest.raises(TrainingError, match="step 1: the gradient norm is"):
        engine.train(small.ListSource(small.tasks(), seed=1))
    assert same(before, weights(engine))


def test_a_source_that_runs_dry_is_named(policy: Path, tmp_path: Path) -> None:
    class Dry(small.ListSource):
        def draw(self, n: int) -> list[Any]:
            return super().draw(n)[:-1]

    with pytest.raises(TrainingError, match="gave 3 tasks instead of 4"):
        start(policy, tmp_path, small.config()).train(Dry(small.tasks()))


def test_doing_no_step_is_an_error(policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = start(policy, tmp_path, small.config(checkpoint={"every": 1}))
    engine.train(small.ListSource(small.tasks()))
    with pytest.raises(RunError, match="already has 2 of 2 steps"):
        engine.train(small.ListSource(small.tasks()))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"train": {"extra": {"learnin_rate": 1}}}, "train.extra.*learnin_rate"),
        ({"train": {"extra": {"beta": 1}}}, "use train.beta instead"),
        ({"train": {"extra": {"loss_type": "grpo"}}}, "Equation 1"),
        ({"train": {"extra": {"lr_scheduler_type": "cosine"}}}, "use train.schedule instead"),
        ({"train": {"micro_batch": 3}}, "train.micro_batch: 3 must divide the 16 rollouts"),
    ],
)
def test_a_setting_that_cannot_work_is_refused_by_name(
    change: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=said):
        arguments(small.config(**change), tmp_path)


def test_extra_settings_reach_trl(tmp_path: Path) -> None:
    extra = {"weight_decay": 0.3, "epsilon_high": 0.28, "warmup_steps": 5}
    got = arguments(small.config(train={"extra": extra, "schedule": "cosine"}), tmp_path)
    assert (got.weight_decay, got.epsilon_high, got.warmup_steps) == (0.3, 0.28, 5)
    assert got.lr_scheduler_type == "cosine"


def test_eight_processes_share_a_step_or_are_refused(tmp_path: Path) -> None:
    config = small.config(train={"tasks_per_step": 32, "group_size": 8, "micro_batch": 32})
    got = arguments(config, tmp_path, processes=8)
    assert (got.per_device_train_batch_size, got.gradient_accumulation_steps) == (4, 8)
    assert got.steps_per_generation == 8
    with pytest.raises(ConfigError, match="3 processes cannot share"):
        arguments(config, tmp_path, processes=3)


def test_a_prompt_longer_than_the_window_and_a_batch_of_one_token_messages_are_normal(
    policy: Path, tmp_path: Path
) -> None:
    long = [replace(t, turns=("Set size to red. " * 60, *t.turns[1:])) for t in small.tasks()[:1]]
    limits = {"context_tokens": 40, "tokens_per_step": 1}
    engine = start(policy, tmp_path, small.config(rollout=limits))
    engine.train(small.ListSource([*small.tasks()[:2], *long]))
    assert all(line["stops"] for line in records(tmp_path))


@pytest.mark.parametrize("mode", ["colocate", "server"])
def test_vllm_settings_are_accepted_where_there_is_no_gpu(mode: str, tmp_path: Path) -> None:
    extra = {"vllm_gpu_memory_utilization": 0.35, "gradient_checkpointing": True}
    got = arguments(small.config(train={"vllm": mode, "precision": "bf16", "extra": extra}), tmp_path)
    assert (got.use_vllm, got.vllm_mode, got.bf16) == (True, mode, True)


def test_vllm_that_is_not_installed_is_a_mistake_with_a_name(policy: Path, tmp_path: Path) -> None:
    engine = start(policy, tmp_path, small.config(train={"vllm": "colocate"}))
    with pytest.raises(ConfigError, match=r"(?i)vllm"):
        engine.train(small.ListSource(small.tasks()))
