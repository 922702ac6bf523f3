"""Tests of what programs of the user's own are told and what they say."""
