package shim

import (
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"orch/internal/process"
	"orch/internal/transcript"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "shim" {
		os.Exit(Run(os.Args[2]))
	}
	goleak.VerifyTestMain(m)
}

func argv(args ...string) func(*process.Spec)     { return func(s *process.Spec) { s.Argv = args } }
func grace(d time.Duration) func(*process.Spec)   { return func(s *process.Spec) { s.KillGrace = d } }
func timeout(d time.Duration) func(*process.Spec) { return func(s *process.Spec) { s.Timeout = d } }
func logCap(n int64) func(*process.Spec)          { return func(s *process.Spec) { s.LogCap = n } }

func stallTimeout(d time.Duration) func(*process.Spec) {
	return func(s *process.Spec) { s.StallTimeout = d }
}

func toolStallTimeout(d time.Duration) func(*process.Spec) {
	return func(s *process.Spec) { s.ToolStallTimeout = d }
}

func claude(s *process.Spec) { s.Format = transcript.Claude }
