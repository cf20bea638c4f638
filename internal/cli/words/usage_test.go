package words_test

import (
	"testing"

	"orch/api"
	"orch/internal/cli/words"
)

func TestUsed(t *testing.T) {
	t.Parallel()
	for want, budget := range map[string]api.Budget{
		"0 runs, 0.00 USD, 0 tokens":   {},
		"1 run, 0.42 USD, 9999 tokens": {Used: api.Usage{Runs: 1, CostUsd: 0.42, InputTokens: 9000, OutputTokens: 999}},
		"4 of 20 runs, 3.17 of 20.00 USD, 812k of 20M tokens (2 without a price)": {
			Used: api.Usage{Runs: 4, CostUsd: 3.166, InputTokens: 812_345, Unpriced: 2}, MaxRuns: new(int64(20)), MaxCostUsd: new(20.0),
			MaxTokens: new(int64(20_000_000)),
		},
		"2 runs, 0.00 USD, 1.3M tokens": {Used: api.Usage{Runs: 2, InputTokens: 1_250_000, OutputTokens: 10_000}},
	} {
		if got := words.Used(budget); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
