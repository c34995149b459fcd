"""``python -m dskype.deploy``: the command line."""

import sys

from dskype.deploy.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
