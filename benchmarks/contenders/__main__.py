"""`python -m benchmarks.contenders MODULE JOB`: run one contender, and print its outcome as the last line."""

import json
import sys
from importlib import import_module

from benchmarks.contenders import TOLD, Job

if __name__ == "__main__":
    module, told = sys.argv[1:]
    found = import_module(f"benchmarks.contenders.{module}").run(Job.from_json(json.loads(told)))
    print(f"{TOLD}{json.dumps(found)}", flush=True)
