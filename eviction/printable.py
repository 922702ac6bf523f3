"""Text of others, such that it can be shown. Imports nothing: an emergency must not wait."""


def escaped(text: str) -> str:
    """The text, with a Python escape for each character that is not printable."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode()
        for c in text
    )
