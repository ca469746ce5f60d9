"""Run work in separate processes: everything that loads a model trains, generates, merges and exports here.

`python -m mens_pipeline.jobs JOB PARENT` runs the job that a file describes; `run.KINDS` lists the kinds.

- Start: `local.run_job` starts that command on this machine, with several ranks (`--ranks N`, `agent`) or with workers
  of a Ray cluster (`--ray`, `ray`). It gets no secrets, no network, and no imports from the current folder
  (`environment`).
- Device: one job at a time holds it, by a lock that the system frees (`device`).
- Progress: events as lines of `telemetry.jsonl` next to the job, which the parent follows (`progress`).
- Stop: SIGTERM, after which a resumable job writes a checkpoint; then SIGKILL for its group. Where no signal arrives,
  the file `stop` asks. A child ends with its parent.
- End: the exit code; `result.json`, or `failure.json` with the reason (`protocol`).
"""
