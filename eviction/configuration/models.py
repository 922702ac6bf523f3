"""Models of input from outside: how pydantic checks it.

The program loads no pydantic plugins: `eviction.__main__` switches them off before anything is
imported. In other processes, such as a test suite, they stay on.
"""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetPydanticSchema


def name_in_file(attribute: str) -> str:
    """In camel case, and without the unit, which a text in a file has itself."""
    first, *rest = attribute.removesuffix("_seconds").removesuffix("_bytes").split("_")
    return first + "".join(
        word.upper() if word in ("gc", "ca") else word.capitalize() for word in rest
    )


class Model(BaseModel):
    """The base of all models: immutable; only a field that says how converts its value."""

    model_config = ConfigDict(strict=True, frozen=True)


def read_as(written: Any, read: Callable[[Any], Any]) -> Any:
    """Marks a field of the type `written` in a file, whose value is what `read` makes of it.

    `read` raises ValueError with the end of a sentence about the field.
    """
    # pydantic inspects the parameters of the function that it is given, and those of a class or an
    # enumeration differ between versions of Python
    after = AfterValidator(lambda value: read(value))  # noqa: PLW0108 # so that it has exactly one parameter
    return GetPydanticSchema(lambda _, handler: handler.generate_schema(Annotated[written, after]))


def setting(default: Any, name: str | None = None, **constraints: Any) -> Any:
    """A field with this default, as written in a file; a type stands for its empty value.

    `name`: in files, if it is not that of the attribute.
    """
    given = {"default_factory": default} if isinstance(default, type) else {"default": default}
    return Field(alias=name, **given, **constraints)
