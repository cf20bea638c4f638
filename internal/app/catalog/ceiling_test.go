package catalog

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"orch/internal/config"
)

func TestCeilingIsAboveWhateverMayLive(t *testing.T) {
	t.Parallel()
	const (
		short = "agents:\n  coder: {preset: command, command: work, timeout: 1m}\n"
		long  = "agents:\n  coder: {preset: command, command: work, timeout: 20h}\n" +
			"pipelines:\n  p:\n    - {stage: development, agent: coder, gates: [{command: check, timeout: 2h}]}\n"
	)
	for name, test := range map[string]struct {
		yaml, configured string
		want             time.Duration
		refused          string
	}{
		"by itself, at least an hour":         {short, "0", 71*time.Minute + 20*time.Second, ""},
		"by itself, an agent that takes long": {long, "0", 22*time.Hour + 40*time.Minute + 20*time.Second, ""},
		"configured":                          {short, "4000", 4000 * time.Second, ""},
		"below what an agent may take":        {long, "7200", 81020 * time.Second, `ORCH_REAPER_MAX_RUNNING_S="7200" can't be used: it must be at least 81020`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, "orch.yaml")
			if err := os.WriteFile(path, []byte(test.yaml), 0o600); err != nil {
				t.Fatal(err)
			}
			file, err := LoadFile(config.Data{Root: dir, File: path})
			if err != nil {
				t.Fatal(err)
			}
			var cfg config.Config
			cfg.Worker.KillGrace = config.Seconds(10 * time.Second)
			if err := cfg.Reaper.MaxRunning.Decode(test.configured); err != nil {
				t.Fatal(err)
			}
			got, err := Ceiling(&cfg, file)
			if got != test.want || (err == nil) != (test.refused == "") || err != nil && !strings.Contains(err.Error(), test.refused) {
				t.Errorf("%s, %v", got, err)
			}
		})
	}
}
