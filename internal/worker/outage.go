package worker

import (
	"context"
	"log/slog"
	"sync"

	"orch/internal/db"
)

// outages counts errors of the database and logs each sort of call once per change of its code.
type outages struct {
	w     *Worker
	mu    sync.Mutex
	codes map[string]string // call → code of its last failure
}

func (o *outages) failed(ctx context.Context, call string, err error) {
	o.w.stats.errors.Add(1)
	code := db.Code(err)
	o.mu.Lock()
	same := o.codes[call] == code
	o.codes[call] = code
	o.mu.Unlock()
	if same {
		return
	}
	attrs := []any{slog.String("call", call), slog.String("error_code", code)}
	if code == db.CodeInternal { // no outage: someone has to read it
		attrs = append(attrs, slog.Any("error", err))
	}
	o.w.log.WarnContext(ctx, "queue call failed, will be retried", attrs...)
}

func (o *outages) over(ctx context.Context, call string) {
	o.mu.Lock()
	code, was := o.codes[call]
	delete(o.codes, call)
	o.mu.Unlock()
	if was {
		o.w.log.InfoContext(ctx, "queue call works again", slog.String("call", call), slog.String("error_code", code))
	}
}
