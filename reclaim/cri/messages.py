"""The generated messages of CRI, and the error that parsing them raises."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from reclaim.cri import cri_pb2 as pb

__all__ = ["DecodeError", "pb"]
