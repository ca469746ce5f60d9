"""Work in processes of their own: whatever loads a model trains, generates, merges and exports here.

`python -m mens_pipeline.jobs JOB PARENT` does the job that a file describes; `run.KINDS` says what each kind of job is.

- Start: `local.run_job` starts that command on this machine, several ranks with `--ranks N` (`agent`), workers of a
  Ray cluster with `--ray` (`ray`). It gets no secrets, no network, and nothing of the current folder (`environment`).
- Device: one job at a time holds it, by a lock that the system frees (`device`).
- Progress: events as lines of `telemetry.jsonl` beside the job, which the parent follows (`progress`).
- Stop: SIGTERM, upon which a job that can go on writes a checkpoint; then SIGKILL for its group. Where no signal
  reaches, the file `stop` asks. A child ends with its parent, however that ends.
- End: the exit code; `result.json`, or `failure.json` with the reason (`protocol`).
"""
