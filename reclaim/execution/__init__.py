"""Carries out a plan: measures, removes, stops when the disk is relieved."""
