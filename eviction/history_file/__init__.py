"""The history: every pass and removal of the last weeks, in one file of fixed size that is written in place."""
