package outcome_test

import (
	"testing"

	"orch/internal/agent/outcome"
	"orch/internal/process"
	"orch/internal/transcript"
)

// A program that runs the tests itself may end with what a red one says: that is no reason to stop it for every task.
func TestARedTestIsNoRefusal(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]outcome.Outcome{
		"server_test.go:12: want status 401 Unauthorized, got 200":     outcome.AgentFailed,
		"AssertionError: expected 429 Too Many Requests, received 200": outcome.AgentFailed,
		"E   assert 'usage limit reached' in page":                     outcome.AgentFailed,
		"--- FAIL: TestThrottle (0.00s): rate limit exceeded":          outcome.AgentFailed,
		"Error: got status 401 Unauthorized":                           outcome.Auth,
		"HTTP 429 Too Many Requests":                                   outcome.RateLimited,
		"usage limit reached":                                          outcome.Quota,
		"Request failed with status code 429":                          outcome.RateLimited,
		"API call failed: 401 Unauthorized":                            outcome.Auth,
	} {
		got := outcome.Judge(transcript.Command, process.Exit{Why: process.WhyExited, Code: new(1)}, transcript.Said{}, []byte(line+"\n"), now, nil)
		if got.Outcome != want {
			t.Errorf("%q: %s, want %s", line, got.Outcome, want)
		}
	}
}
