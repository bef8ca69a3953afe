"""The entry point of the command `tidemark`: it imports the command line, and runs it."""

import gc


def main() -> None:
    """Run the command line.

    Garbage collection is disabled during the imports: they leave almost no garbage, and collecting it takes a fifth of their time.
    """
    gc.disable()
    from platform_defs.cli.main import main as run

    gc.freeze()
    gc.enable()
    run()
