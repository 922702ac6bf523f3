"""Tests of the drill's judgement."""
