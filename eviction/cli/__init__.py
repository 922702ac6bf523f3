"""The command line: one module for each subcommand, of its name, imported when it is used. Data
goes to stdout, messages to stderr.

A command reaches the node only through `client.Client`, the daemon, or `local_node.LocalNode`,
without one. To add one: a module with `OPTIONS` and `run`, and its line in `commands`.
"""
