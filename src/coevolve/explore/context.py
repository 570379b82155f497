"""What reflection on failed rollouts comes to: the paper's exploration context (section 3.2)."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Line = Annotated[str, Field(max_length=600)]
Lines = Annotated[tuple[Line, ...], Field(max_length=8)]


class ExplorationContext(BaseModel):
    """Where and how the agent fails or wavers, and what an explorer should do about it.

    All of it is advice in words: nothing in it can change limits, splits, paths or tools.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    where: Line = Field(min_length=1, description="Where in the environment: tools, state, situation.")
    wrong: Line = Field(min_length=1, description="What went wrong in the failed rollouts.")
    wavers: Line = Field("", description="What differs between success and failure, if both were seen.")
    attempt: Lines = Field(min_length=1, description="What to try in the environment.")
    vary: Lines = Field((), description="What to vary: values, order, length, starting state.")
    avoid: Lines = Field((), description="What to leave alone.")
