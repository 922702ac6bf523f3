"""The forms of the texts in files, as JSON Schema has them: types of the fields of models.

They check nothing. The texts are parsed where the other fields are known (`effective`, the reader of scenarios), with a
sentence that names field and source. A text that has not the form here is refused there.
"""

from __future__ import annotations

from typing import Annotated, Any

from eviction.configuration.models import Field
from eviction.configuration.threshold_config import LEFT_TO_KUBELET
from signals.quantity import AMOUNT_PATTERN, DURATION_PATTERN, LONGEST_TEXT, PERCENTAGE_PATTERN, QUANTITY_PATTERN
from signals.types import AVAILABLE, INODES_FREE, KUBELET_SIGNALS, ROLE_NAME

Schema = dict[str, Any]

NULL: Schema = {"type": "null"}


def text_form(*patterns: str, examples: tuple[str, ...] = ()) -> Any:
    """The form of the text of a number: whole, by one of these regular expressions."""
    pattern = f"^({'|'.join(patterns)})$"
    return Field(json_schema_extra={"pattern": pattern, "maxLength": LONGEST_TEXT, "examples": [*examples]})


def map_by_signal(*others: str, amounts: bool = False) -> Any:
    """The form of a map whose keys are signals. `others`: signals that only the kubelet acts on. `amounts`: a small
    amount of a disk needs a unit, unlike one of inodes."""

    def name_the_signals(schema: Schema) -> None:
        value = schema["additionalProperties"]
        amount = {**value, "pattern": f"^({AMOUNT_PATTERN}|{PERCENTAGE_PATTERN})$"} if amounts else value
        disks = {str(signal): value if signal.counts_inodes else amount for signal in KUBELET_SIGNALS}
        schema["properties"] = {**disks, **dict.fromkeys(others, value)}
        schema["patternProperties"] = {
            rf"^{ROLE_NAME.pattern}\.{name}$": each for name, each in ((AVAILABLE, amount), (INODES_FREE, value))
        }
        schema["additionalProperties"] = False

    return Field(json_schema_extra=name_the_signals)


def or_null(schema: Schema) -> Schema:
    """The same schema, with null allowed: in a file it takes a value away, from a map too, whatever its name."""
    rest = {word: value for word, value in schema.items() if word not in ("default", "title")}
    for word in rest.keys() & {"properties", "patternProperties"}:
        rest[word] = {name: or_null(value) for name, value in rest[word].items()}
    if "patternProperties" in rest:
        rest["additionalProperties"] = NULL
    alternatives = rest["anyOf"] if rest.keys() == {"anyOf"} else [rest]
    default = {"default": schema["default"]} if "default" in schema else {}
    return {**default, "anyOf": [*alternatives, *([] if NULL in alternatives else [NULL])]}


Duration = Annotated[str, text_form(DURATION_PATTERN, examples=("30s", "1m30s", "250ms"))]
"""A Go duration, not negative."""

Lead = Annotated[str, text_form("auto", "0s")]
"""`auto`, or `0s` for none."""

Quantity = Annotated[str, text_form(QUANTITY_PATTERN, examples=("500Mi", "1.5Gi", "1e9"))]
"""A Kubernetes quantity, not negative."""

QuantityOrPercentage = Annotated[str, text_form(QUANTITY_PATTERN, PERCENTAGE_PATTERN, examples=("10Gi", "7.5%"))]
"""A Kubernetes quantity, or a percentage of the capacity."""

Amount = Annotated[str, text_form(AMOUNT_PATTERN, PERCENTAGE_PATTERN, examples=("10Gi", "7.5%"))]
"""An amount of a disk: a quantity, with a unit if it is less than 1 MiB, or a percentage of the capacity."""

AbsolutePath = Annotated[str, Field(json_schema_extra={"pattern": "^/"})]
PathOrEmpty = Annotated[str, Field(json_schema_extra={"pattern": "^(/|$)"})]

Marks = Annotated[dict[str, QuantityOrPercentage], map_by_signal(*LEFT_TO_KUBELET, amounts=True)]
"""Signal -> value, with a unit where it is a small amount of a disk. `0%` switches a signal off."""

GracePeriods = Annotated[dict[str, Duration], map_by_signal(*LEFT_TO_KUBELET)]
"""Signal -> how long its soft threshold must have been met."""
