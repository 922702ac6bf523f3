"""`reclaimd help`: what a command does; the options that commands share, and every field of the
configuration; or what the pages say of a finding, an alert, a word.
"""

import re
from argparse import Action, Namespace

from eviction.cli.commands import COMMANDS
from eviction.cli.output import exit_with
from eviction.cli.parser import command_of, help_of_all, row_of, table_of, unknown
from eviction.cli.streams import write_out
from eviction.exit_codes import EXIT_OK, EXIT_USAGE
from eviction.shipped import shipped

CONFIGURATION = "configuration"
WITHOUT_CONFIGURATION = True


OPTIONS = {
    "topic? TOPIC": f"a command, {CONFIGURATION}, a finding of doctor, an alert, or a word",
}


def run(arguments: Namespace) -> int:
    """Exit 0; 2 there is no such topic.

    Example: reclaimd help configuration
    """
    topic = arguments.topic
    if topic is None:
        text = help_of_all()
    elif topic == CONFIGURATION:
        text = help_of_configuration()
    elif topic in COMMANDS:
        text = command_of(topic)[0].format_help()
    elif topic in (found := explained()):
        text = f"{found[topic]}\n"
    else:
        exit_with(
            EXIT_USAGE,
            unknown(
                "topic",
                topic,
                sorted({*COMMANDS, CONFIGURATION, *found}),
                otherwise="reclaimd --help lists the commands",
            ),
        )
    write_out(text)
    return EXIT_OK


def explained() -> dict[str, str]:
    """What the pages say of each finding of doctor, alert and word, without links."""
    pages = [
        shipped(f"{name}.md", "docs").read_text(encoding="utf-8")
        for name in ("troubleshooting", "monitoring", "glossary")
    ]
    text = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", "\n".join(pages))
    return dict(re.findall(r"^### ([^\n]+)\n\n(.+?)\n+(?=#|\Z)", text, re.MULTILINE | re.DOTALL))


def help_of_configuration() -> str:
    """The options that commands share, and the file that explains every field."""
    lines: list[str] = []
    for title, actions in shared_options().items():
        lines += [f"{title}:", *table_of(map(row_of, actions)), ""]
    return "\n".join([*lines, "The file, with every field:", "", all_fields()])


def shared_options() -> dict[str, list[Action]]:
    """The options that commands share, by the title of their group. `run` has them all."""
    return {title: actions for title, actions in command_of("run")[0].groups().items() if title}


def all_fields() -> str:
    """The text of the file with every field, its default and its meaning."""
    return shipped("all-fields.yaml").read_text(encoding="utf-8")
