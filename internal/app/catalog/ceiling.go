package catalog

import (
	"fmt"
	"time"

	"orch/internal/config"
	"orch/internal/config/orchyaml"
	"orch/internal/gate"
)

const (
	// leastCeiling is what a job may run for at least, whatever orch.yaml says.
	leastCeiling = time.Hour
	// ceilingSlack is for what a run takes beside its program: a checkout, a busy machine.
	ceilingSlack = 10 * time.Minute
)

// longest is how long orch.yaml lets a job run: an agent, its gates and the repository's test, each to its timeout, and the
// graces of their ends.
func longest(file *orchyaml.File, grace time.Duration) time.Duration {
	agent, command := file.Timeouts()
	return agent + max(command, gate.DefaultTimeout) + gate.DefaultTimeout + 2*grace
}

// Ceiling is after how long a job that can't be seen to live is dead. One that was configured and would reap a living agent is
// refused, and what would do is the answer beside the error: a running server goes on with that after an edit of orch.yaml.
// Source: ORCH-065 FR-1.3.
func Ceiling(cfg *config.Config, file *orchyaml.File) (time.Duration, error) {
	least := longest(file, cfg.Worker.KillGrace.Duration())
	configured := cfg.Reaper.MaxRunning
	switch {
	case configured == 0:
		return max(leastCeiling, least+ceilingSlack), nil
	case configured.Duration() < least:
		return least, &config.ValueError{
			Variable: "ORCH_REAPER_MAX_RUNNING_S", Value: configured.String(),
			Allowed: fmt.Sprintf("it must be at least %s, the longest that orch.yaml lets an agent, its gates and its test run: else a living agent would be reaped",
				config.Seconds(least)),
		}
	default:
		return configured.Duration(), nil
	}
}
