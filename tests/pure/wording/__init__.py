"""Sentences, tables and documents."""
