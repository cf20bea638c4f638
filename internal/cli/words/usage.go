package words

import (
	"fmt"
	"strconv"

	"orch/api"
)

// Used is what was used of a budget, in a few words.
func Used(b api.Budget) string {
	u := b.Used
	text := fmt.Sprintf("%s, %s, %s", runs(u.Runs, b.MaxRuns), USD(u.CostUsd, b.MaxCostUsd), tokens(u.InputTokens+u.OutputTokens, b.MaxTokens))
	if u.Unpriced > 0 {
		text += fmt.Sprintf(" (%d without a price)", u.Unpriced)
	}
	return text
}

// USD is an amount of US dollars, and of how many.
func USD(amount float64, limit *float64) string {
	text := fmt.Sprintf("%.2f", amount)
	if limit != nil {
		text += fmt.Sprintf(" of %.2f", *limit)
	}
	return text + " USD"
}

func runs(n int64, limit *int64) string {
	switch {
	case limit != nil:
		return fmt.Sprintf("%d of %d runs", n, *limit)
	case n == 1:
		return "1 run"
	default:
		return fmt.Sprintf("%d runs", n)
	}
}

func tokens(n int64, limit *int64) string {
	text := rounded(n)
	if limit != nil {
		text += " of " + rounded(*limit)
	}
	return text + " tokens"
}

// rounded is a number that nobody reads to the last digit.
func rounded(n int64) string {
	const thousand, million = 1_000, 1_000_000
	switch {
	case n >= 10*million:
		return fmt.Sprintf("%dM", n/million)
	case n >= million:
		return fmt.Sprintf("%.1fM", float64(n)/million)
	case n >= 10*thousand:
		return fmt.Sprintf("%dk", n/thousand)
	default:
		return strconv.FormatInt(n, 10)
	}
}
