"""Models of what comes from outside. The one home of pydantic.

The program loads no plugin of pydantic's: `eviction.__main__` switches them off before anything is imported. In a
process of somebody else's, such as the suite that uses our pytest plugin, its plugins stay as they are.
"""

from __future__ import annotations

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    GetPydanticSchema,
    PlainSerializer,
    SkipValidation,
    Tag,
    TypeAdapter,
    ValidationError,
)
from pydantic.alias_generators import to_camel

__all__ = [
    "AfterValidator",
    "ConfigDict",
    "Discriminator",
    "Field",
    "GetPydanticSchema",
    "Model",
    "PlainSerializer",
    "SkipValidation",
    "Tag",
    "TypeAdapter",
    "ValidationError",
    "to_camel",
]


class Model(BaseModel):
    """What all models of ours share: no type is turned into another, and no value changes."""

    model_config = ConfigDict(strict=True, frozen=True)
