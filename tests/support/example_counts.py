"""The number of random examples that a test runs: a quarter of the full number if `TESTS_FEW_EXAMPLES` is 1, as in `make test-fast`."""

import os

_SHARE = 4 if os.environ.get("TESTS_FEW_EXAMPLES") == "1" else 1


def example_count(full: int) -> int:
    """The number of random examples to run.

    Args:
        full: how many examples `make test` runs.
    """
    return -(-full // _SHARE)
