"""The history: every pass and every removal of the last weeks, in one file of fixed size that is written in place."""
