"""The subcommands: a module of each name, with _ for -, has its options and runs it."""

COMMANDS = {
    "run": "the daemon: watch, and relieve pressure when a threshold is crossed",
    "reclaim": "the emergency hook: one pass, now",
    "check": "one observation: signals, thresholds, headroom, layout",
    "plan": "what would be removed now, and why everything else is kept",
    "why": "whether one object would be removed now, by which rule, and when",
    "status": "what the running daemon is doing, and its last passes",
    "pause": "stop all removals for a while; ends automatically",
    "resume": "end a pause",
    "reload": "the daemon reads its configuration again; ends once it is in force",
    "top": "how full disks are, what goes next and why, live in the terminal",
    "history": "every pass and every removal of the last weeks, from a file",
    "config": "the values in force, where each of them comes from, and all marks",
    "doctor": "what is wrong or risky on this node, and what to do about it",
    "ballast": "create, show or remove the file that is released on a full disk",
    "xfs-hint": "have XFS allocate less ahead of files that grow on this node",
    "install": "place units, manual, completions and a configuration",
    "uninstall": "stop the service, and remove what install has placed",
    "manifests": "the manifests of the DaemonSet, for kubectl apply -f -",
    "drill": "test eviction paths, on an embedded node or on a real one",
    "help": "the help of a command; help configuration: all options and fields",
}
