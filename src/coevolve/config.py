"""The typed configuration of a run: YAML in, one frozen, fully resolved object out.

Every key has a default, a type and a sentence of help; an unknown one is refused with the nearest
valid name. Rooms receive their own section, never the whole.
"""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator


class Section(BaseModel):
    """A part of the configuration: frozen, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class EnvironmentConfig(Section):
    name: str = Field("bfcl", description="Registered name, or 'module:Class' of your own environment.")
    classes: Literal["all"] | tuple[str, ...] = Field(
        "all", description="Tool classes of the environment to use; 'all' or a list of names."
    )
    workers: int = Field(2, ge=0, description="Worker processes for sessions; 0 runs them in this process.")
    call_seconds: float | None = Field(
        None,
        gt=0,
        description="Deadline of one tool call; an overrun kills its worker. null takes the "
        "environment's own: 5, and 100 for a block of AppWorld code.",
    )
    memory_mb: int | None = Field(
        None,
        ge=0,
        description="Memory of one worker beyond what the environment itself takes, in MB (Linux); a call "
        "that needs more fails. 0 is no limit, null takes the environment's own: 2048, and 4096 in all for "
        "a world of AppWorld.",
    )
    root: str | None = Field(
        None, description="Folder with the environment's data, where it has one; null takes its usual place."
    )
    release: str | None = Field(
        None,
        description="Release of the benchmark's package, where it has several; null takes the pinned one.",
    )


class RolloutConfig(Section):
    format: Literal["auto", "hermes", "llama", "python", "code"] = Field(
        "auto",
        description="Tool-call format; 'auto' reads it off the model's chat template, 'code' is for "
        "environments whose one tool takes code.",
    )
    steps_per_turn: int = Field(
        21, ge=1, description="Messages of the agent in one user turn before the task stops."
    )
    calls_per_step: int = Field(16, ge=1, description="Calls executed of one message; the rest are errors.")
    tokens_per_step: int = Field(512, ge=1, description="Tokens the policy may generate in one message.")
    context_tokens: int = Field(8192, ge=16, description="Prompt and completion together, in tokens.")
    observation_tokens: int = Field(512, ge=1, description="Longer observations are cut in the middle.")
    temperature: float = Field(1.0, gt=0, description="Sampling temperature of training rollouts.")


class TrainConfig(Section):
    engine: Literal["trl"] = Field("trl", description="Training engine.")
    tasks_per_step: int = Field(8, ge=1, description="Tasks drawn per step, over all processes.")
    group_size: int = Field(8, ge=2, description="K, rollouts per task (Eq. 1).")
    learning_rate: float = Field(1e-4, gt=0, description="AdamW learning rate.")
    schedule: Literal["constant", "linear", "cosine"] = Field(
        "constant", description="Learning-rate schedule."
    )
    epsilon: float = Field(0.2, gt=0, lt=1, description="Clipping range of the importance ratio (Eq. 1).")
    beta: float = Field(0.01, ge=0, description="Weight of the KL term against the fixed reference (Eq. 1).")
    normalise: Literal["group", "batch"] = Field(
        "group", description="Token mean per group, as in Eq. 1, or over the whole batch, as in DAPO."
    )
    demonstrate: float = Field(
        0.0,
        ge=0,
        description="Weight of a supervised term on the verified solution where all K rollouts "
        "failed; 0 is off, as in the paper.",
    )
    micro_batch: int = Field(
        0, ge=0, description="Rollouts per forward pass; 0 takes the whole step at once."
    )
    max_grad_norm: float = Field(1.0, gt=0, description="Gradient clipping.")
    precision: Literal["fp32", "bf16"] = Field("fp32", description="Number format of training.")
    threads: int = Field(0, ge=0, description="Torch threads per process; 0 takes the machine's cores.")
    vllm: Literal["off", "colocate", "server"] = Field("off", description="Generation by vLLM (needs a GPU).")
    report_to: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = Field(
        (), description="Trackers that get every line of metrics.jsonl, under the same names."
    )
    extra: dict[str, Any] = Field(
        default_factory=dict, description="Further keys of TRL's GRPOConfig, passed as they are."
    )

    @field_validator("vllm", mode="before")
    @classmethod
    def _off_is_a_word(cls, given: Any) -> Any:
        """YAML reads a bare ``off`` as false."""
        return "off" if given is False else given


class LoraConfig(Section):
    rank: int = Field(16, ge=1, description="Rank of the adapter.")
    alpha: int = Field(32, ge=1, description="Scale of the adapter.")
    targets: str | tuple[str, ...] = Field("all-linear", description="Modules that get an adapter.")


class ForgettingConfig(Section):
    window: int = Field(5, ge=1, description="W: scores remembered per task.")


class BoundaryConfig(Section):
    pass


class RareConfig(Section):
    theta: float = Field(5.0, gt=0, le=100, description="A pattern rarer than this many percent is rare.")
    window: int = Field(20, ge=1, description="Steps over which patterns are counted.")


class UnseenConfig(Section):
    window: int = Field(10, ge=1, description="Steps in which no rollout has used the tool.")


class SignalsConfig(Section):
    forgetting: ForgettingConfig | None = Field(default_factory=ForgettingConfig, description="null is off.")
    boundary: BoundaryConfig | None = Field(default_factory=BoundaryConfig, description="null is off.")
    rare: RareConfig | None = Field(default_factory=RareConfig, description="null is off.")
    unseen: UnseenConfig | None = Field(
        None, description="Tools that are offered and never used; not in the paper, off by default."
    )


class PriceConfig(Section):
    prompt: float = Field(0.0, ge=0, description="Price of a million prompt tokens, in your currency.")
    completion: float = Field(0.0, ge=0, description="Price of a million completion tokens.")


class LlmConfig(Section):
    base_url: str | None = Field(
        None,
        description="An OpenAI-compatible endpoint, e.g. http://localhost:8000/v1; null loads 'model' here.",
    )
    model: str = Field("", description="The model's name at the endpoint, or a Hugging Face id or path.")
    key: str = Field(
        "OPENAI_API_KEY", description="Environment variable with the endpoint's key; unset is no key."
    )
    tools: Literal["auto", "native", "text"] = Field(
        "auto",
        description="Native tool calling, a text protocol, or native until the endpoint refuses it.",
    )
    temperature: float = Field(1.0, ge=0, description="Sampling temperature.")
    tokens: int = Field(1024, ge=16, description="Completion tokens of one answer, at most.")
    concurrency: int = Field(8, ge=1, description="Explorations side by side.")
    seconds: float = Field(60.0, gt=0, description="Deadline of one request.")
    attempts: int = Field(4, ge=1, description="Requests for one answer, before it is an outage.")
    price: PriceConfig = Field(default_factory=PriceConfig)


class ExploreConfig(Section):
    kind: Literal["scripted", "llm", "policy"] = Field(
        "scripted", description="Who explores: scripts, the model of 'llm', or the policy itself."
    )
    calls: int = Field(12, ge=1, description="Calls of one exploration.")
    turns: int = Field(1, ge=1, le=4, description="User turns of a synthesised task, at most.")
    calls_per_task: int = Field(4, ge=1, description="Calls of a synthesised task's solution, at most.")
    context_tokens: int = Field(
        3000,
        ge=100,
        description="Failed rollouts shown for reflection, in tokens; longer ones lose their middle.",
    )
    reasks: int = Field(2, ge=0, description="Times that a model is asked again after an invalid answer.")
    seconds: float = Field(300.0, gt=0, description="Time that one exploration by a model may wait for it.")
    tokens: int = Field(120_000, ge=1, description="Tokens that one exploration by a model may use.")


class SolverConfig(Section):
    by: Literal["policy", "llm"] = Field("llm", description="Who must solve the task from its text alone.")
    tries: int = Field(3, ge=1, description="Tries, of which one must succeed.")


class VerifyConfig(Section):
    rule: Literal["replay", "paper", "none"] = Field(
        "replay",
        description="Strict replay, the paper's rule (success or a positive reward), or no execution at all "
        "(Table 11); duplicates and overlap with the held-out tests are refused by all of them.",
    )
    solver: SolverConfig | None = Field(
        None, description="After replay, someone must solve the task without a hint; null is off."
    )
    safety: bool = Field(
        False, description="After replay, the model of 'llm' refuses instructions that ask for harm."
    )


class BudgetConfig(Section):
    calls: int | None = Field(None, ge=1, description="Answers of a model, at most; null is no limit.")
    tokens: int | None = Field(None, ge=1, description="Tokens, prompt and completion together.")
    seconds: float | None = Field(None, gt=0, description="Seconds spent waiting for a model.")
    money: float | None = Field(None, gt=0, description="Money, by llm.price.")


class EvolveConfig(Section):
    every: int = Field(10, ge=0, description="Steps between evolutions; 0 never evolves.")
    tasks: int = Field(20, ge=0, description="Tasks to admit at each evolution, at most.")
    guided: bool = Field(True, description="Explore from signals; false explores at random (Table 3).")
    unguided: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Share of an evolution's explorations that follow no signal, and so reach tools that no "
        "rollout has used; 0 is the paper's.",
    )
    turns: Literal["equal", "learnable"] = Field(
        "equal",
        description="Which kind of signal guides next: each in turn, or by the share of mixed groups on the "
        "tasks that it has brought so far.",
    )
    attempts: int = Field(10, ge=1, description="Explorations per wanted task before an evolution gives up.")
    lag: int = Field(
        0,
        ge=0,
        description="Steps that training goes on beside an evolution; its tasks join at the end of them.",
    )
    budget: BudgetConfig = Field(
        default_factory=BudgetConfig,
        description="What one evolution may spend on a model; an exploration reserves explore.tokens and "
        "explore.seconds of it until it has ended. D_0 is bounded by evolve.attempts alone.",
    )

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if self.unguided and not self.guided:
            raise ValueError("evolve.unguided is a share of guided explorations, and evolve.guided is false")
        if self.every and self.lag >= self.every:
            raise ValueError(
                f"evolve.lag ({self.lag}) must be less than evolve.every ({self.every}): an evolution "
                "must have joined before the next one begins"
            )
        return self


class PoolConfig(Section):
    initial: int = Field(100, ge=1, description="Verified tasks in D_0.")
    tasks: str | None = Field(
        None,
        description="A .jsonl or .parquet file of tasks that D_0 begins with, as far as they may enter; "
        "exploration adds what is missing of pool.initial.",
    )
    sampler: Literal["uniform", "retire", "learnable"] = Field(
        "uniform",
        description="Uniform, as the paper has it; mastered tasks rest until a signal fires; or tasks whose "
        "last group was near half success are drawn more often.",
    )
    calls_per_task: int | None = Field(
        None,
        ge=1,
        description="Calls of a pool task's solution, at most; null takes explore.calls_per_task, as the "
        "held-out tests do.",
    )
    retire_after: int = Field(5, ge=1, description="Groups in a row, all solved, after which a task rests.")


class EvaluateConfig(Section):
    every: int = Field(0, ge=0, description="Steps between evaluations on the dev split; 0 never in between.")
    episodes: int = Field(256, ge=0, description="Unguided tasks of the second held-out test.")
    split: Literal["dev", "test"] = Field("test", description="Which ids the held-out tests are made of.")
    batch: int = Field(64, ge=1, description="Episodes side by side.")
    classes: Literal["all"] | tuple[str, ...] | None = Field(
        None,
        description="Tool classes of the held-out tests; null takes those of the environment. Others measure "
        "transfer.",
    )


class CheckpointConfig(Section):
    every: int = Field(10, ge=1, description="Steps between checkpoints.")
    keep: int = Field(2, ge=1, description="Complete checkpoints kept.")


class Config(Section):
    """One run."""

    environment: EnvironmentConfig = Field(default_factory=EnvironmentConfig)
    model: str = Field("tiny", description="'tiny', a Hugging Face id, or a path.")
    adapter: Literal["none", "lora"] = Field("none", description="Train all weights, or a LoRA adapter.")
    lora: LoraConfig = Field(default_factory=LoraConfig)
    steps: int = Field(60, ge=1, description="GRPO steps.")
    seed: int = Field(0, ge=0, description="Seeds every random generator of the run.")
    rollout: RolloutConfig = Field(default_factory=RolloutConfig)
    train: TrainConfig = Field(default_factory=TrainConfig)
    signals: SignalsConfig = Field(default_factory=SignalsConfig)
    explore: ExploreConfig = Field(default_factory=ExploreConfig)
    llm: LlmConfig = Field(default_factory=LlmConfig)
    verify: VerifyConfig = Field(default_factory=VerifyConfig)
    evolve: EvolveConfig = Field(default_factory=EvolveConfig)
    pool: PoolConfig = Field(default_factory=PoolConfig)
    evaluate: EvaluateConfig = Field(default_factory=EvaluateConfig)
    checkpoint: CheckpointConfig = Field(default_factory=CheckpointConfig)

    @model_validator(mode="after")
    def _explores_with_weights_at_rest(self) -> Self:
        """Beside training its weights change, so what the policy answers would depend on who is faster."""
        asks = {
            "explore.kind": self.explore.kind,
            "verify.solver.by": self.verify.solver.by if self.verify.solver else "",
        }
        for key, who in asks.items():
            if self.evolve.lag and who == "policy":
                raise ValueError(
                    f"evolve.lag must be 0 where {key} is policy: training changes the policy beside it"
                )
        return self
