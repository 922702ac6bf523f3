"""Reclaim functions of other distributions: their values, their answers, their entries of the table, their page."""
