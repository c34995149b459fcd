"""The command line: ``dskype``, or ``python -m dskype.deploy``."""

import sys


def main() -> int:
    """Run a command; Ctrl-C while its parser is still being imported ends it without a traceback, too."""
    try:
        from dskype.deploy.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
