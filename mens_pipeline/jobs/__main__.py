"""The entry point of every job: `python -m mens_pipeline.jobs JOB [PARENT] [--ranks N] [--ray]`."""

import sys

from mens_pipeline.jobs.run import leave, main

if __name__ == "__main__":
    leave(main(sys.argv[1:]))
