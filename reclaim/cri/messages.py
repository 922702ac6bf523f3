"""The generated messages of CRI, imported without protobuf's implementation in pure Python.

protobuf imports that (with the text format, an encoder and a decoder) even where its implementation in C is at work
and nobody will call it: 1 MiB, and 10 ms of every command that asks the runtime. Where C is not to be had it is touched
while the messages are made, and then it is loaded.
"""

from __future__ import annotations

from reclaim.lazy_imports import lazily

with lazily("google.protobuf.internal.python_message"):
    from google.protobuf.message import DecodeError

    from reclaim.cri import cri_pb2 as pb

__all__ = ["DecodeError", "pb"]
