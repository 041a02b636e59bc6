"""The `queuelake` command: how a command line is run, and how an error becomes one line.

Exit codes: 0 done, 1 failed while running, 2 wrong usage or configuration, 130 interrupted.
"""

from __future__ import annotations

import os
import sys

from queuelake.cli.foreground import plain_serve, run_broker
from queuelake.errors import ConfigError, QueuelakeError

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
DEBUG_VARIABLE = "QUEUELAKE_DEBUG"


def main() -> None:
    """Run the command line and end the process."""
    sys.exit(run())


def run(arguments: list[str] | None = None) -> int:
    """Run one command line and return its exit code; errors become lines on stderr."""
    try:
        return _run(sys.argv[1:] if arguments is None else arguments)
    except SystemExit as done:
        return _exit_code(done)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except ConfigError as error:
        for mistake in error.mistakes:
            _report(mistake)
        return EXIT_USAGE
    except QueuelakeError as error:
        _report(str(error))
    except OSError as error:
        _report(_os_error_line(error))
    except Exception as error:
        if os.environ.get(DEBUG_VARIABLE):
            raise
        _report(
            f"internal error, please report it: {type(error).__name__}: {error} "
            f"(set {DEBUG_VARIABLE}=1 to see where)"
        )
    return EXIT_FAILED


def _run(words: list[str]) -> int:
    options = plain_serve(words)
    if options is not None:
        return run_broker(options)
    from queuelake.cli.commands import app

    app(words, prog_name="queuelake")
    raise AssertionError("a command ends with SystemExit")


def _exit_code(done: SystemExit) -> int:
    if done.code is None:
        return 0
    return done.code if isinstance(done.code, int) else EXIT_FAILED


def _os_error_line(error: OSError) -> str:
    reason = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {reason}" if error.filename else reason


def _report(line: str) -> None:
    print("error: " + line.replace("\n", " "), file=sys.stderr)


if __name__ == "__main__":
    main()
