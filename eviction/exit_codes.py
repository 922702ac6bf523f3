"""Exit codes; `docs/commands.md` has the table.

0 success; 1 pressure remains, a threshold is met, or an expectation failed; 2 usage or
configuration; 3 the runtime cannot be reached; 4 a reading is unavailable; 6 `reclaim` removed
nothing, as an operator has paused it; 71 threads or descriptors that a pass needs cannot be created
(EX_OSERR of sysexits.h); 74 the output cannot be written, and what was done stays done (EX_IOERR);
75 another instance holds the node.
"""

EXIT_OK = 0
EXIT_NOT_RELIEVED = 1
EXIT_USAGE = 2
EXIT_RUNTIME = 3
EXIT_READING = 4
EXIT_HELD = 75
EXIT_PAUSED = 6
EXIT_NO_RESOURCES = 71
EXIT_OUTPUT = 74
EXIT_INTERRUPTED = 130  # as a shell reports SIGINT
