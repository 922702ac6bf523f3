"""Pure tests of telemetry."""
