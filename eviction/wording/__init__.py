"""Sentences, tables and documents for people and programs. Decides nothing."""
