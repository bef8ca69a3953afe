"""`python -m benchmarks.contenders MODULE JOB`: run one contender and print its outcome as the last line."""

import json
import sys
from importlib import import_module

from benchmarks.contenders import OUTCOME_PREFIX, Job

if __name__ == "__main__":
    module, job = sys.argv[1:]
    outcome = import_module(f"benchmarks.contenders.{module}").run(Job.from_json(json.loads(job)))
    print(f"{OUTCOME_PREFIX}{json.dumps(outcome)}", flush=True)
