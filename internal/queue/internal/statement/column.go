package statement

// JobColumns is the select list that fills a queue.Job.
const JobColumns = `id, kind, lane, repo, args, state, priority, run_at, attempt, max_attempts, recoveries, epoch,
	worker_id, root_id, host, boot_id, pid, pid_started_at, task_id, run_id, pinned_root, dedupe_key, concurrency_key,
	phase, progress, heartbeat_at, lease_expires_at, cancel_requested_at, started_at, finished_at, created_at,
	waiting_since, error_code, error`

// WorkerColumns is the select list that fills a queue.Worker.
const WorkerColumns = `id, root_id, host, boot_id, pid_namespace, pid, pid_started_at, version, lanes, repos, schema`
