// Package metrics tells Prometheus what GET /queue tells people, and how long things took.
//
// # Facts
//
// How many jobs wait, what the daemons did, which agents run: all of it is read off the snapshot that GET /queue has in its
// cache, so that a scrape asks the database nothing. While the database is away the last good snapshot stays, orch_snapshot_ok
// is 0 and orch_snapshot_age_seconds grows; before there ever was one, its facts are absent.
//
// # Histograms
//
// How long jobs waited, runs, gates and landings took is read off the rows that have ended since the last look, a few seconds
// ago: so what `orch worker` does on other hosts is in it, and no code that ends something has to think of metrics. They begin
// at zero when the process starts, as those of any process do.
//
// Each row counts once. A look reads what ended before a moment that no transaction which is still open can have written
// behind: the start of the oldest one that writes. It goes on where the one before ended, so that nothing has to be kept to
// know a row again. A transaction that stays open for more than two minutes, or that belongs to another role of the server and
// stays open for more than two seconds after it has ended a row, may be missed; nothing is ever counted twice.
//
// # Cardinality
//
// Labels take few values. Agents and repositories are those of orch.yaml, everything else is "other"; and so is, of any
// label, what comes after the first fifty values that this process has met.
package metrics
