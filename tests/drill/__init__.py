"""The drill: its scenarios, its verdicts, its reports."""
