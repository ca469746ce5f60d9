"""Run all work that loads a model in separate processes: training, generation, merging and export.

`python -m mens_pipeline.jobs JOB PARENT` runs the job that the file JOB describes; `run.KINDS` lists the kinds of job.

- Start: `local.run_job` starts this command on this machine: alone, with several ranks (`--ranks N`, `agent`), or with
  workers of a Ray cluster (`--ray`, `ray`). The process gets no secrets, works offline, and imports nothing from the
  current folder (`environment`).
- Device: a lock, which the system frees when a process dies, lets one job at a time use the device (`device`).
- Progress: the job writes events to `telemetry.jsonl` in its folder, and the parent follows this file (`progress`).
- Stop: SIGTERM, to which a resumable job responds with a checkpoint, then SIGKILL for the process group. The file
  `stop` replaces signals that cannot reach a worker. A child ends with its parent.
- End: the exit code, and `result.json`, or `failure.json` with the reason (`protocol`).
"""
