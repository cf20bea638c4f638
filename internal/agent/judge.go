package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/google/uuid"

	"orch/internal/agent/hear"
	"orch/internal/agent/ledger"
	"orch/internal/agent/outcome"
	"orch/internal/agent/sight"
	"orch/internal/process"
	"orch/internal/transcript"
)

// keptTail is how much of the end of the output is kept for people to read.
const keptTail = 8 << 10

// grounds are those on which a run without a record may be taken for dead. By default the breaker takes a look first.
type grounds struct {
	// looked says that it has taken one, asked that somebody wants the run to end: then there is nothing to doubt.
	looked, asked bool
	// killed is the reason of a run whose shim was killed since it didn't end the run.
	killed process.Why
	// adrift is the reason of a run whose shim ended it without having been told why, as its directory was gone.
	adrift process.Why
}

// judge says what a run that is over has come to. Whatever a dead shim left is ended before. ErrMassDeath and
// process.ErrForeign mean that it may not be over at all.
func (r *Runs) judge(ctx context.Context, run Run, on grounds) (Result, error) {
	before, err := r.Before(ctx, run)
	if err != nil {
		return Result{}, err
	}
	shim, adrift, err := r.finder().Open(run)
	if errors.Is(err, process.ErrNoRun) || !adrift.IsZero() {
		exit, err := r.lost(ctx, run, adrift, on)
		if err != nil {
			return Result{}, err
		}
		return conclude(run, exit, transcript.None, transcript.Said{}, nil, before), nil
	}
	if err != nil {
		return Result{}, err
	}
	exit, err := shim.Wait(ctx)
	if errors.Is(err, process.ErrShimDead) || errors.Is(err, process.ErrForeign) {
		exit, err = r.withoutRecord(ctx, run, shim, on)
	}
	if err != nil {
		return Result{}, err
	}
	if on.adrift != "" && exit.Why == process.WhyInterrupted {
		exit.Why = on.adrift
	}
	return result(run, exit, shim, before)
}

// withoutRecord is the end of a run whose shim died: what that left is ended first. Where the shim doesn't tell any more in
// which boot and pid namespace it was, the row does: its starter's. A run of another pid namespace of this boot may still
// be at work there; it is over only when that namespace is.
func (r *Runs) withoutRecord(ctx context.Context, run Run, shim *process.Run, on grounds) (process.Exit, error) {
	st, err := shim.State()
	if err != nil {
		return process.Exit{}, err
	}
	at := st.PIDs.Shim
	if at.IsZero() {
		at = sight.Starter(run)
	}
	if err := r.over(ctx, run.ID, at, on); err != nil {
		return process.Exit{}, err
	}
	if err := shim.EndRemains(ctx); err != nil {
		return process.Exit{}, err
	}
	killed := on.killed
	if why, ok := shim.StopWanted(); ok && !on.asked {
		killed = why // whoever wanted it died before that was noted
	}
	exit := process.Exit{Why: process.WhyShimDead, Error: process.ErrShimDead.Error()}
	switch {
	case killed != "":
		exit = process.Exit{Why: killed, Signal: "SIGKILL", Error: "its shim didn't end it"}
	case !r.finder().Here(at):
		exit = interrupted()
	}
	if st.Status == process.StatusForeign {
		_ = shim.Settle(exit) // else its directory is kept for longer
	}
	return exit, nil
}

// interrupted is the end of a run that went with its boot or pid namespace.
func interrupted() process.Exit {
	return process.Exit{Why: process.WhyInterrupted, Error: "its machine or container was restarted"}
}

// over is nil when a run that was at that place, and has neither shim nor record, is over for certain.
func (r *Runs) over(ctx context.Context, id uuid.UUID, at process.Identity, on grounds) error {
	switch {
	case at.BootID != r.cfg.Self.BootID, r.cfg.Self.Outlived(at):
		return nil
	case !r.finder().Here(at):
		return r.namespaceGone(ctx, at)
	default:
		return r.believed(ctx, id, on)
	}
}

// lost is the end of a run whose directory is gone. After a power cut that may be one that was just made. As long as its shim
// lives, it hasn't come to one, unless somebody wants it to.
func (r *Runs) lost(ctx context.Context, run Run, adrift process.Identity, on grounds) (process.Exit, error) {
	exit, shim := process.Exit{Why: process.WhyShimDead, Error: "run directory is lost"}, adrift.PID
	switch {
	case adrift.IsZero():
		if err := r.finder().There(); err != nil {
			return process.Exit{}, err
		}
		if err := r.over(ctx, run.ID, sight.Starter(run), on); err != nil {
			return process.Exit{}, err
		}
	case !on.asked:
		return process.Exit{}, fmt.Errorf("%w: its directory is lost, its shim lives", process.ErrUnknown)
	}
	if on.adrift != "" {
		exit.Why = on.adrift
	}
	if !r.finder().Here(sight.Starter(run)) {
		exit = interrupted()
	} else if run.ShimPID != nil {
		shim = *run.ShimPID
	}
	return exit, process.EndLost(ctx, run.ID.String(), r.dir(run.ID), shim)
}

// namespaceGone is nil when nothing of a pid namespace is left, and process.ErrForeign when that isn't sure.
func (r *Runs) namespaceGone(ctx context.Context, of process.Identity) error {
	if r.cfg.NamespaceGone == nil {
		return nil
	}
	gone, err := r.cfg.NamespaceGone(ctx, of)
	if err != nil {
		return err
	}
	if !gone {
		return process.ErrForeign
	}
	return nil
}

// result is what a run has come to whose end is known.
func result(run Run, exit process.Exit, shim *process.Run, before *ledger.SessionTotal) (Result, error) {
	log := shim.Log()
	tail, err := log.Tail(max(outcome.TailBytes, keptTail))
	if err != nil {
		return Result{}, err
	}
	if exit.LogBytes == 0 {
		if exit.LogBytes, err = log.Size(); err != nil {
			return Result{}, err
		}
	}
	if said := shim.ShimErr(); exit.Why == process.WhyNeverStarted && said != "" {
		exit.Error = strings.Join([]string{exit.Error, said}, ": ")
	}
	format, said := transcript.None, transcript.Said{}
	if run.Purpose == PurposeAgent { // what a branch's own code prints decides nothing
		if format = shim.Spec().Format; format == transcript.None {
			format = transcript.Command
		}
		said = hear.All(shim, format, exit)
	}
	return conclude(run, exit, format, said, tail, before), nil
}

func conclude(run Run, exit process.Exit, format transcript.Format, said transcript.Said, tail []byte, before *ledger.SessionTotal) Result {
	said = ledger.Reported(said)
	at := exit.FinishedAt
	if at.IsZero() {
		at = time.Now()
	}
	// Programs write times as people here read them: TZ is passed on to them.
	verdict := outcome.Judge(format, exit, said, tail, at, time.Local) //nolint:gosmopolitan // see above
	res := Result{RunID: run.ID, Agent: run.Agent, Preset: run.Preset, ResumedFrom: run.ResumedFrom, LogTail: lastOf(tail)}
	res.End = ledger.End{
		Exit: exit, Outcome: verdict.Outcome, SessionID: ledger.Clean(said.SessionID, ledger.MaxText), Summary: ledger.Clean(said.Summary, ledger.MaxText),
		Question: ledger.Clean(cmp.Or(verdict.Question, said.Question), ledger.MaxText), Detail: ledger.Clean(verdict.Detail, ledger.MaxDetail),
	}
	if !verdict.ResetAt.IsZero() {
		res.ResetAt = &verdict.ResetAt
	}
	res.Usage, res.Total = ledger.Used(said, before)
	res.SessionLost = said.SessionLost || said.TooLong ||
		run.ResumedFrom != nil && !said.Begun && hear.Speaks(format) && exit.Why == process.WhyExited && res.Outcome.Class() == outcome.Spent
	return res
}

// stored is the result of a run whose end was noted before: as the row has it, with what only the directory holds, as
// far as that can still be read.
func (r *Runs) stored(ctx context.Context, run Run) Result {
	res := Result{RunID: run.ID, Agent: run.Agent, Preset: run.Preset, ResumedFrom: run.ResumedFrom, End: run.End()}
	shim, err := process.OpenRun(r.dir(run.ID))
	if err == nil {
		var tail []byte
		st, unread := shim.State()
		if st.Exit != nil {
			res.Exit = *st.Exit
		}
		tail, err = shim.Log().Tail(keptTail)
		res.LogTail, err = lastOf(tail), errors.Join(unread, err)
	}
	if err != nil && !errors.Is(err, process.ErrNoRun) {
		r.log.WarnContext(ctx, "run directory can't be read", slog.String("run_id", run.ID.String()), slog.Any("error", err))
	}
	noted := run.End()
	res.Exit.Code, res.Exit.Signal, res.Exit.Why, res.Exit.LogBytes = noted.Exit.Code, noted.Exit.Signal, noted.Exit.Why, noted.Exit.LogBytes
	return res
}

// logEnd is the one line about the end of a run.
func (r *Runs) logEnd(ctx context.Context, what string, run Run, res Result) {
	attrs := []slog.Attr{
		slog.String("run_id", run.ID.String()), slog.Int64("task_id", run.TaskID),
		slog.String("why", string(res.Exit.Why)), slog.String("outcome", string(res.Outcome)),
	}
	level := slog.LevelInfo
	if res.Exit.Error != "" {
		level = slog.LevelWarn
		attrs = append(attrs, slog.String("error", ledger.Clean(res.Exit.Error, ledger.MaxError)))
	}
	r.log.LogAttrs(ctx, level, what, attrs...) //nolint:sloglint // what is one of two constants
}

// lastOf keeps the end of the output for people to read.
func lastOf(output []byte) string {
	if len(output) > keptTail {
		output = output[len(output)-keptTail:]
	}
	return ledger.Clean(string(output), len(output))
}
