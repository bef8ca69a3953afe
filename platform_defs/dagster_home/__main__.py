"""Prepares the folder of the settings, and prints it: `python -m platform_defs.dagster_home`."""

import sys

from platform_defs.dagster_home.instance import main

if __name__ == "__main__":
    sys.exit(main())
