package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"orch/internal/agent/ledger"
	"orch/internal/process"
	"orch/internal/transcript"
)

// noteSaidEvery is how often what a run has used is written while it goes on; a session is written at once.
const noteSaidEvery = 10 * time.Second

// understoodWithin is how long after the output there is what the shim has understood of it.
const understoodWithin = 3 * time.Second

// progress is what the job shows of its run while it goes on.
type progress struct {
	Tool         string   `json:"tool,omitempty"`
	Turns        int      `json:"turns,omitempty"`
	CostUSD      *float64 `json:"cost_usd,omitempty"`
	InputTokens  int64    `json:"input_tokens,omitempty"`
	OutputTokens int64    `json:"output_tokens,omitempty"`
}

// listener hears what a run says while it is followed.
type listener struct {
	*attempt
	run    Run
	shim   *process.Run
	before *ledger.SessionTotal
	awake  process.Identity // the shim's, once it is known
	// size is how much was said, grownAt when that was seen.
	size, grownAt int64
	lines         int64
	session       string
	noted         Usage
	notedAt       int64
}

// listen tells the lease of new output, and the row of what it says, until the returned function is called. A run that is
// silent costs a look at its directory.
func (a *attempt) listen(ctx context.Context, run Run, shim *process.Run) (stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	l := &listener{attempt: a, run: run, shim: shim, size: logSize(shim), grownAt: process.BootClock()}
	if run.SessionID != nil {
		l.session = *run.SessionID
	}
	var listening sync.WaitGroup
	listening.Go(func() {
		counted := false
		for {
			l.wake()
			if !counted {
				var err error
				l.before, err = a.Before(ctx, run)
				counted = err == nil
			}
			if counted {
				l.look(ctx)
			}
			if !errors.Is(pause(ctx, a.cfg.ListenEvery), errAgain) {
				return
			}
		}
	})
	return func() {
		cancel(nil)
		listening.Wait()
	}
}

// wake keeps the shim from being stopped: nobody else would end its run in time.
func (l *listener) wake() {
	if l.awake.IsZero() {
		if st, err := l.shim.State(); err == nil {
			l.awake = st.PIDs.Shim
		}
	}
	_ = process.Wake(l.awake) // with the next look, else
}

func (l *listener) look(ctx context.Context) {
	now := process.BootClock()
	if size := logSize(l.shim); size > l.size {
		l.size, l.grownAt = size, now
		l.lease.NoteOutput()
	}
	// The shim tells what it has understood a little after it was said.
	if l.req.Purpose != PurposeAgent || now > l.grownAt+int64(l.cfg.ListenEvery+understoodWithin) {
		return
	}
	said, err := l.shim.Said()
	if err != nil || said.Lines == l.lines {
		return // what the end needs is read at the end
	}
	l.lines = said.Lines
	l.hear(ctx, ledger.Reported(said))
}

func (l *listener) hear(ctx context.Context, said transcript.Said) {
	usage, _ := ledger.Used(said, l.before)
	l.lease.SetProgress(progress{
		Tool: ledger.Clean(said.Tool, ledger.MaxDetail), Turns: usage.Turns, CostUSD: usage.CostUSD, InputTokens: usage.InputTokens, OutputTokens: usage.OutputTokens,
	})
	now := process.BootClock()
	begun := said.SessionID != "" && said.SessionID != l.session
	if !begun && (usage == l.noted || now < l.notedAt+int64(noteSaidEvery)) {
		return
	}
	if l.ledger.NoteSaid(ctx, l.run.ID, said.SessionID, usage) == nil { // else with the next look, and at the end
		l.session, l.noted, l.notedAt = said.SessionID, usage, now
	} else {
		l.grownAt, l.lines = now, 0
	}
}

// logSize is how much the run has said; nothing, when that can't be told now.
func logSize(shim *process.Run) int64 {
	size, err := shim.Log().Size()
	if err != nil {
		return 0
	}
	return size
}
