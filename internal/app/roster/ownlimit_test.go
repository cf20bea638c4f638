package roster

import (
	"strings"
	"testing"

	"orch/internal/testagent"
)

// What one agent's run may cost says nothing of what another's has.
func TestARunIsHeldAgainstTheLimitOfItsOwnAgent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, strings.NewReplacer("preset: claude,", "preset: claude, max_cost_usd: 10,", "preset: codex,", "preset: codex, max_cost_usd: 0.5,").Replace(withFallback))
	w.program("coder", "claude", testagent.Turn{Kind: testagent.Quota})
	w.program("spare", "codex", works)
	added := w.add()
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	w.used(8)
	w.through(added)
}

// One that went beyond its own is told of, whoever would be next.
func TestARunBeyondTheLimitOfItsOwnAgentIsToldOfWhoeverIsNext(t *testing.T) {
	t.Parallel()
	w := newWorld(t, strings.NewReplacer("preset: claude,", "preset: claude, max_cost_usd: 0.5,", "preset: codex,", "preset: codex, max_cost_usd: 10,").Replace(withFallback))
	w.program("coder", "claude", testagent.Turn{Kind: testagent.Quota})
	w.program("spare", "codex", works)
	added := w.add()
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	w.used(8)
	w.due()
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	w.blockedFor(added, "budget_run", "its last run, by agent coder, used 8.00, more than the 0.50 USD")
}
