"""The command line as a file for `spark-submit`, in a folder of its own: Python finds modules beside such a file first."""

from platform_defs.cli.main import main

main()
