package metrics

import (
	"slices"
	"sync"
)

const (
	other     = "other"
	maxValues = 50 // of one label
)

// label bounds the values that a label takes.
type label struct {
	known func() []string // values that may be shown; nil: any

	mu  sync.Mutex
	met map[string]bool
}

func newLabel(known func() []string) *label { return &label{known: known, met: map[string]bool{}} }

// value is text, or "other" for what isn't known or comes after the first 50.
func (l *label) value(text string) string {
	if l.known != nil && !slices.Contains(l.known(), text) {
		return other
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.met[text] {
		return text
	}
	if len(l.met) == maxValues {
		return other
	}
	l.met[text] = true
	return text
}

// labels are those whose values come from outside.
type labels struct {
	lane, kind, agent, repo, service, outcome, gate *label
}

func newLabels(cfg Config) *labels {
	return &labels{
		lane: newLabel(nil), kind: newLabel(nil), agent: newLabel(cfg.Agents), repo: newLabel(cfg.Repos),
		service: newLabel(nil), outcome: newLabel(nil), gate: newLabel(nil),
	}
}
