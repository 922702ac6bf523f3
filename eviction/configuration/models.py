"""Models of what comes from outside. The one home of pydantic.

The program loads no plugin of pydantic's: `eviction.__main__` switches them off before anything is imported. In a
process of somebody else's, such as the suite that uses our pytest plugin, its plugins stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, GetPydanticSchema
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


class Model(BaseModel):
    """What all models of ours share: no value changes, nor its type, but where a field says how it is read."""

    model_config = ConfigDict(strict=True, frozen=True)


def read_as(written: Any, read: Callable[[Any], Any]) -> Any:
    """The mark of a field that a file has as `written`, a type, and whose value is what `read` makes of that. `read`
    raises ValueError with the end of a sentence about the field."""
    return GetPydanticSchema(lambda _, handler: handler.generate_schema(Annotated[written, after(read)]))


def after(read: Callable[[Any], Any]) -> AfterValidator:
    """Has a field's value read once more. pydantic looks at the parameters of what it is given, and those of a class or
    of an enumeration are not what it expects on each version of Python."""
    return AfterValidator(lambda value: read(value))  # noqa: PLW0108 # it is the one parameter that matters


not_read: Any = GetPydanticSchema(lambda _, __: {"type": "any"})
"""The mark of a field that is worked out from the others, and so is not checked."""


def setting(name: str, default: Any = None, **constraints: Any) -> Any:
    """A field that files call `name`, with its default as a file would have it; a type makes an empty one of it."""
    given = {"default_factory": default} if isinstance(default, type) else {"default": default}
    return Field(alias=name, **given, **constraints)
