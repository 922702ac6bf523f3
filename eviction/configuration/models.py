"""Models of input from outside. The only module that uses pydantic.

The program loads no pydantic plugins: `eviction.__main__` switches them off before anything is
imported. In other processes, such as a test suite, they stay on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, GetPydanticSchema
from pydantic import BeforeValidator as BeforeValidator
from pydantic import ConfigDict as ConfigDict
from pydantic import Discriminator as Discriminator
from pydantic import Field as Field
from pydantic import PlainSerializer as PlainSerializer
from pydantic import SkipValidation as SkipValidation
from pydantic import Tag as Tag
from pydantic import TypeAdapter as TypeAdapter
from pydantic import ValidationError as ValidationError
from pydantic import model_validator as model_validator
from pydantic.alias_generators import to_camel as to_camel
from pydantic_core import PydanticCustomError as PydanticCustomError


class Model(BaseModel):
    """The base of all models: immutable; only a field that says how converts its value."""

    model_config = ConfigDict(strict=True, frozen=True)


def read_as(written: Any, read: Callable[[Any], Any]) -> Any:
    """Marks a field of the type `written` in a file, whose value is what `read` makes of it.

    `read` raises ValueError with the end of a sentence about the field.
    """
    return GetPydanticSchema(
        lambda _, handler: handler.generate_schema(Annotated[written, after(read)])
    )


def after(read: Callable[[Any], Any]) -> AfterValidator:
    """Passes a validated value through `read`."""
    # pydantic inspects the parameters of the function that it is given, and those of a class or an
    # enumeration differ between versions of Python
    return AfterValidator(lambda value: read(value))  # noqa: PLW0108 # so that it has exactly one parameter


not_read: Any = GetPydanticSchema(lambda _, __: {"type": "any"})
"""Marks a field that is derived from others, and so is not checked."""


def setting(name: str, default: Any = None, **constraints: Any) -> Any:
    """A field called `name` in files.

    `default`: as written in a file; a type stands for its empty value.
    """
    given = {"default_factory": default} if isinstance(default, type) else {"default": default}
    return Field(alias=name, **given, **constraints)
