package orchyaml

import (
	"math"
	"strconv"
	"strings"
)

// NoLimit is what a bound says that is left out on purpose.
const NoLimit = "none"

// Bounds that hold when the file names none.
const (
	defaultRunCostUSD = 5
	defaultDayCostUSD = 25
	defaultTaskRuns   = 20
)

// Budgets bound what agents use: each run, all runs of a task, all runs of a day.
type Budgets struct{ Run, Task, Day Budget }

// Budget bounds one of them; nil is no bound.
type Budget struct {
	MaxCostUSD *float64
	MaxTokens  *int64
	MaxRuns    *int
}

func (r *resolver) budgets() Budgets {
	raw, runs := r.doc.data.Budgets, defaultTaskRuns
	if raw.Run != nil && raw.Run.MaxRuns != nil {
		r.at("budgets", "run", "max_runs")("budgets.run takes no max_runs: a run is one")
	}
	return Budgets{
		Run:  r.budget(raw.Run, Budget{MaxCostUSD: new(float64(defaultRunCostUSD))}, "run"),
		Task: r.budget(raw.Task, Budget{MaxRuns: &runs}, "task"),
		Day:  r.budget(raw.Day, Budget{MaxCostUSD: new(float64(defaultDayCostUSD))}, "day"),
	}
}

func (r *resolver) budget(raw *budgetYAML, fallback Budget, name string) Budget {
	if raw == nil {
		return fallback
	}
	return Budget{
		MaxCostUSD: r.amount(raw.MaxCostUSD, fallback.MaxCostUSD, "budgets", name, "max_cost_usd"),
		MaxTokens:  r.tokens(raw.MaxTokens, fallback.MaxTokens, "budgets", name, "max_tokens"),
		MaxRuns:    r.count(raw.MaxRuns, fallback.MaxRuns, "budgets", name, "max_runs"),
	}
}

// amount reads an amount of dollars.
func (r *resolver) amount(raw any, fallback *float64, path ...any) *float64 {
	var usd float64
	switch value := raw.(type) {
	case nil:
		return fallback
	case string:
		if value == NoLimit {
			return nil
		}
	case float64:
		usd = value
	case uint64:
		usd = float64(value)
	}
	if !(usd > 0) || math.IsInf(usd, 0) { // NaN is neither
		r.at(path...)("%s: %s is no amount above zero, such as 2.50, and not %s", dotted(path), written(raw), NoLimit)
		return nil
	}
	return &usd
}

func (r *resolver) tokens(raw any, fallback *int64, path ...any) *int64 {
	if raw == nil {
		return fallback
	}
	return r.whole(raw, math.MaxInt64, path...)
}

func (r *resolver) count(raw any, fallback *int, path ...any) *int {
	if raw == nil {
		return fallback
	}
	n := r.whole(raw, math.MaxInt32, path...)
	if n == nil {
		return nil
	}
	return new(int(*n))
}

// whole reads a whole number.
func (r *resolver) whole(raw any, most uint64, path ...any) *int64 {
	switch value := raw.(type) {
	case string:
		if value == NoLimit {
			return nil
		}
	case uint64:
		if value > 0 && value <= most {
			return new(int64(value)) //nolint:gosec // most is no more
		}
	}
	r.at(path...)("%s: %s is no whole number above zero, and not %s", dotted(path), written(raw), NoLimit)
	return nil
}

// dotted names a key by the way to it, such as budgets.day.max_cost_usd.
func dotted(path []any) string {
	words := make([]string, 0, len(path))
	for _, step := range path {
		if word, ok := step.(string); ok {
			words = append(words, word)
		}
	}
	return strings.Join(words, ".")
}

// written is a scalar as an error quotes it; a list or a mapping isn't.
func written(raw any) string {
	switch value := raw.(type) {
	case string:
		return strconv.Quote(value)
	case uint64:
		return strconv.Quote(strconv.FormatUint(value, 10))
	case int64:
		return strconv.Quote(strconv.FormatInt(value, 10))
	case float64:
		return strconv.Quote(strconv.FormatFloat(value, 'g', -1, 64))
	default:
		return "this"
	}
}
