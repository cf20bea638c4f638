package alert

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/queue"
	"orch/internal/queue/tally"
)

const (
	// WaitingForSum is what an alert waits for that is to be told together with others.
	WaitingForSum = "alert_sum"

	singles    = 3                // of a kind and code are told by themselves, at once
	singlesFor = time.Hour        // within this time
	gatherFor  = 5 * time.Minute  // that long after the last of them the first sum comes,
	sumEvery   = 30 * time.Minute // and then one within this time, as long as there is something to tell
	sumMost    = 1000             // alerts in one sum
)

// Turn is what a job that tells over a channel has to say, and when.
type Turn struct {
	lease   *queue.Lease
	channel string
	alert   Alert
	putOff  bool      // the job itself has waited for a sum
	sums    bool      // it tells all of its kind and code that wait
	with    []waiting // others that are told with it
	left    bool      // some of those that wait had no room in the message
}

// waiting is an alert whose job is queued.
type waiting struct {
	job   int64
	alert Alert
}

// NewTurn begins the turn of a job. An alert of a newer orch may say more than this one knows.
func NewTurn(l *queue.Lease, channel string) (*Turn, error) {
	job := l.Job()
	t := &Turn{lease: l, channel: channel, putOff: job.Phase != nil && *job.Phase == WaitingForSum}
	if err := json.Unmarshal(job.Args, &t.alert); err != nil {
		return nil, queue.Terminal(queue.CodeBadArgs, fmt.Errorf("decode an alert: %w", err))
	}
	return t, nil
}

// Alert is the job's own.
func (t *Turn) Alert() Alert { return t.alert }

const (
	// alike are the queued jobs of a channel whose alerts are of one code and some kinds.
	alike = ` from unnest(@channels::text[]) as k (kind) cross join lateral (select id, args, phase` + queued + inOrder + `@most) q
	where args->>'kind' = any(@kinds) and coalesce(args->>'code', '') = @code`

	gatherSQL = `select id, args` + alike

	rateSQL = `
select (select count(*) from alerts_told where key = any(@singles) and at > clock_timestamp() - make_interval(secs => @within)) as used,
	(select extract(epoch from clock_timestamp() - max(at)) from alerts_told where key = any(@singles))::float8 as since_single,
	(select extract(epoch from clock_timestamp() - at) from alerts_told where key = @sum)::float8 as since_sum,
	exists (select` + alike + ` and phase = @phase) as waits`
)

// rate is how much was told lately of a kind and code.
type rate struct {
	Used        int      `db:"used"`         // singles
	SinceSingle *float64 `db:"since_single"` // seconds; nil = never
	SinceSum    *float64 `db:"since_sum"`
	Waits       bool     `db:"waits"` // others wait for a sum
}

// Wait says how long the alert has to wait for the sum that tells it; zero: its turn is now. The first of a kind and code are
// told at once. Then a person knows that there are many, and hears of the others in sums.
func (t *Turn) Wait(ctx context.Context) (time.Duration, error) {
	var r rate
	err := t.lease.Tx(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, rateSQL, t.rateArgs())
		if err != nil {
			return err
		}
		r, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[rate])
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("look what was told of %s: %w", t.alert.Kind, err)
	}
	wait, sums := r.wait(t.putOff)
	t.sums = sums
	return wait, nil
}

func (t *Turn) rateArgs() pgx.NamedArgs {
	args := t.args(t.alert.Kind)
	args["singles"], args["sum"], args["within"], args["phase"] = t.singleKeys(), t.sumKey(), singlesFor.Seconds(), WaitingForSum
	return args
}

func (r rate) wait(putOff bool) (wait time.Duration, sums bool) {
	afterSum := left(sumEvery, r.SinceSum)
	if afterSum > 0 {
		return afterSum, true
	}
	if r.Used < singles && !r.Waits && !putOff {
		return 0, false
	}
	return left(gatherFor, r.SinceSingle), true
}

// left is what is left of a time that began so many seconds ago.
func left(of time.Duration, since *float64) time.Duration {
	if since == nil || *since < 0 { // it never began, or by a clock that was wrong
		return 0
	}
	return max(0, of-time.Duration(*since*float64(time.Second)))
}

// Text is the message, with all that is told in it. Nobody else tells any of that meanwhile: one job of a channel runs at a time.
func (t *Turn) Text(ctx context.Context) (string, error) {
	kinds := companions(t.alert)
	if t.sums {
		kinds = append(kinds, t.alert.Kind)
	}
	t.with, t.left = nil, false
	if len(kinds) > 0 {
		if err := t.gather(ctx, kinds); err != nil {
			return "", fmt.Errorf("gather alerts of %s: %w", t.alert.Kind, err)
		}
	}
	all := []Alert{t.alert}
	for _, w := range t.with[:min(len(t.with), sumMost)] {
		all = append(all, w.alert)
	}
	text, told := textOf(all)
	t.with, t.left = t.with[:told-1], told <= len(t.with)
	return text, nil
}

func (t *Turn) gather(ctx context.Context, kinds []Kind) error {
	err := t.lease.Tx(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, gatherSQL, t.args(kinds...))
		if err != nil {
			return err
		}
		var id int64
		var raw json.RawMessage
		_, err = pgx.ForEachRow(rows, []any{&id, &raw}, func() error {
			var a Alert
			if json.Unmarshal(raw, &a) == nil { // else its own turn says so
				t.with = append(t.with, waiting{id, a})
			}
			return nil
		})
		return err
	})
	slices.SortFunc(t.with, func(a, b waiting) int { return cmp.Compare(a.job, b.job) })
	return err
}

// companions are the kinds that the message of an alert tells too, where the code is the same: an agent that is paused until a
// person has done something stops the task whose run found that out.
func companions(a Alert) []Kind {
	if a.Kind == AgentPaused && (a.Code == codeAuth || a.Code == codeNotFound) {
		return []Kind{TaskBlocked}
	}
	return nil
}

// Alone says that the message tells nothing but the job's own alert.
func (t *Turn) Alone() bool { return len(t.with) == 0 }

// Only has the turn tell the job's own alert and nothing else: what it would have told with it has turns of its own, at once.
func (t *Turn) Only() string {
	t.with, t.left = nil, true
	text, _ := textOf([]Alert{t.alert})
	return text
}

// Told notes that the message got through, and when it told others too, ends their jobs together with the turn's own. What isn't
// noted, because a process dies before, is told again.
func (t *Turn) Told(ctx context.Context) error {
	err := t.lease.Tx(ctx, func(tx pgx.Tx) error {
		if err := tally.SetLatestTx(ctx, tx, lastOf(t.channel), last{}); err != nil {
			return err
		}
		if err := t.markTx(ctx, tx); err != nil || t.Alone() {
			return err
		}
		for _, w := range t.with {
			if _, err := queue.FulfilTx(ctx, tx, w.job); err != nil {
				return err
			}
		}
		return t.lease.CompleteTx(ctx, tx)
	})
	if err != nil {
		return fmt.Errorf("note what was told: %w", err)
	}
	return nil
}

const (
	// markSingleSQL takes the single that was told longest ago.
	markSingleSQL = `
insert into alerts_told as t (key, at) select key, clock_timestamp()
from unnest(@singles::text[]) with ordinality s (key, n) left join alerts_told told using (key) order by told.at nulls first, n limit 1
on conflict (key) do update set at = clock_timestamp()`

	markSumSQL = `insert into alerts_told as t (key, at) values (@sum, clock_timestamp()) on conflict (key) do update set at = clock_timestamp()`
)

// markTx notes what was told. A sum that had no room for all is followed by another one.
func (t *Turn) markTx(ctx context.Context, tx pgx.Tx) error {
	sql, args := markSingleSQL, pgx.NamedArgs{"singles": t.singleKeys()}
	if t.sums {
		sql, args = markSumSQL, pgx.NamedArgs{"sum": t.sumKey()}
	}
	if t.sums && t.left {
		return nil
	}
	_, err := tx.Exec(ctx, sql, args)
	return err
}

func (t *Turn) args(kinds ...Kind) pgx.NamedArgs {
	names := make([]string, len(kinds))
	for i, kind := range kinds {
		names[i] = string(kind)
	}
	return pgx.NamedArgs{"lane": lane, "channels": []string{JobKind(t.channel)}, "kinds": names, "code": t.alert.Code, "most": maxPending}
}

func (t *Turn) singleKeys() []string {
	keys := make([]string, singles)
	for i := range keys {
		keys[i] = fmt.Sprintf("single %d of %s", i+1, t.about())
	}
	return keys
}

func (t *Turn) sumKey() string { return "sum of " + t.about() }

func (t *Turn) about() string { return fmt.Sprintf("%s %s %s", t.channel, t.alert.Kind, t.alert.Code) }
