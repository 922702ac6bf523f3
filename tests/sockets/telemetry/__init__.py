"""Tests of telemetry over real sockets."""
