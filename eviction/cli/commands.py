"""The subcommands: a module of each name, with _ for -, has its options and runs it."""

COMMANDS = {
    "status": "what the running daemon is doing, and its last passes",
    "top": "how full disks are, what goes next and why, live",
    "check": "one observation: signals, thresholds, headroom, layout",
    "plan": "what would be removed now, and why everything else is kept",
    "df": "where the bytes are, and what may be freed of them",
    "why": "whether one object would go now, by which rule, and when",
    "history": "every pass and every removal of the last weeks, from a file",
    "doctor": "what is wrong or risky on this node, and what to do",
    "config": "the values in force, where each comes from, and all marks",
    "help": "the help of a command, or of configuration: all fields",
    "run": "the daemon: watch, and relieve pressure at a threshold",
    "reclaim": "the emergency hook: one pass, now",
    "pause": "stop all removals for a while; ends automatically",
    "resume": "end a pause",
    "reload": "have the daemon read its configuration again, and wait",
    "drill": "test eviction paths, on an embedded node or on a real one",
    "install": "place units, manual, completions and a configuration",
    "uninstall": "stop the service, and remove what install has placed",
    "manifests": "the manifests of the DaemonSet, for kubectl apply -f -",
    "ballast": "create, show or remove a file to release on a full disk",
    "xfs-hint": "have XFS allocate less ahead of files that grow here",
}
GROUPS = {"status": "look", "run": "act", "install": "set up"}
"""The first of each group -> its name."""
