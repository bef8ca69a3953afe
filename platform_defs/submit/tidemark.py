"""Runs the command line by `spark-submit`. The file has its own folder, since Python first looks for modules in the folder of a script."""

from platform_defs.cli.start import main

main()
