package start

// remedies say, for each reason to wait, what ends the waiting.
func remedies(cfg Config) map[string]string {
	path := cfg.Config.Data.Root
	bind := "start `orch serve` on it, or run `orch root bind` if only workers are to run here"
	unreachable := "is the database of ORCH_DATABASE_URL up, and can it be reached from here?"
	if cfg.Config.Database.Private() {
		bind = "start `orch serve` on it"
		unreachable = "the private PostgreSQL runs as long as `orch serve` does on " + path
	}
	return map[string]string{
		"root_missing":        "there is no data root at " + path + ": " + bind + "; or name another with --root or ORCH_ROOT",
		"root_unbound":        path + " isn't bound to a database yet: " + bind,
		"setup_pending":       "the first `orch serve` of this database hasn't finished its set-up",
		"start_busy":          "another process is just starting on " + path,
		"marker_write_failed": "the marker in " + path + " can't be written: is the disk full, or not this user's?",
		reasonUnreachable:     unreachable,
		reasonNotMigrated:     "run `orch migrate`",
		reasonPending:         "run `orch migrate`",
		reasonMigrating:       "a newer orch migrates this database: start that version",
	}
}
