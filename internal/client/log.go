package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"orch/api"
)

const (
	// maxLine bounds one line of a stream: a chunk of 32 KiB whose bytes were all escaped, and some more.
	maxLine = 1 << 20
	// silence is how long a stream may say nothing, heartbeats included, before it counts as lost.
	silence  = 45 * time.Second
	retryMin = 100 * time.Millisecond
	retryMax = 2 * time.Second
)

// errSilent says that not even heartbeats came.
var errSilent = errors.New("the stream fell silent")

// Log is a piece of a run's log.
type Log struct {
	Text []byte
	// Offset is that of the first byte, Next where to go on, End the end of the log when it was asked for.
	Offset, Next, End int64
}

// ReadLog returns at most limit bytes of a run's log; a negative offset counts from its end, limit 0 = 1 MiB.
func (c *Client) ReadLog(ctx context.Context, runID uuid.UUID, offset int64, limit int) (Log, error) {
	const doing = "read the log"
	params := api.GetRunLogParams{Offset: &offset}
	if limit > 0 {
		params.Limit = &limit
	}
	body, header, err := c.do(ctx, doing, func(ctx context.Context) (*http.Response, error) { return c.api.GetRunLog(ctx, runID, &params) })
	if err != nil {
		return Log{}, err
	}
	log := Log{Text: body}
	for name, into := range map[string]*int64{"Orch-Log-Offset": &log.Offset, "Orch-Log-Next": &log.Next, "Orch-Log-End": &log.End} {
		if *into, err = strconv.ParseInt(header.Get(name), 10, 64); err != nil {
			return Log{}, fmt.Errorf("%s: the answer isn't one of orch's: %s: %w", doing, name, err)
		}
	}
	return log, nil
}

// Chunk is a piece of a log that is being followed.
type Chunk struct {
	Offset int64 // of its first byte; more than the End before means that bytes in between are gone
	End    int64 // where to go on after it
	Text   string
}

// FollowLog calls fn for each piece of a run's log from offset on (negative: from the end), and returns how the run
// ended. It outlives a restart of the server: it connects again and goes on where it was, without gap or repetition,
// and gives up with ErrNoServer only when nobody answers for the client's MaxOutage. The first connection has to
// succeed. An error of fn ends it.
func (c *Client) FollowLog(ctx context.Context, runID uuid.UUID, offset int64, fn func(Chunk) error) (api.RunEnd, error) {
	f := &follower{client: c, runID: runID, offset: offset, fn: fn}
	wait := retryMin
	var lostAt time.Time
	told := false
	for {
		end, err := f.connect(ctx)
		if end != nil {
			return *end, nil
		}
		if !f.connected || !again(err) || ctx.Err() != nil {
			return api.RunEnd{}, err
		}
		if f.progress {
			lostAt, wait, f.progress, told = time.Time{}, retryMin, false, false
		}
		switch {
		case lostAt.IsZero(): // a stream that broke off may be had again at once
			lostAt = time.Now()
		case !told:
			told = true
			c.onOutage(err)
		}
		if time.Since(lostAt) > c.maxOutage {
			return api.RunEnd{}, err
		}
		if err := pause(ctx, wait); err != nil {
			return api.RunEnd{}, fmt.Errorf("follow the log: %w", err)
		}
		wait = min(2*wait, retryMax)
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// callerError is an error of the caller's function, which ends everything.
type callerError struct{ err error }

func (e *callerError) Error() string { return e.err.Error() }

func (e *callerError) Unwrap() error { return e.err }

// again says whether another connection may help: always, unless the server said no or the caller did.
func again(err error) bool {
	if _, ok := errors.AsType[*callerError](err); ok {
		return false
	}
	if problem, ok := errors.AsType[*ProblemError](err); ok {
		return problem.Status > http.StatusInternalServerError // 502, 503, 504: for now
	}
	return true
}

// follower is the state that one FollowLog keeps over its connections.
type follower struct {
	client    *Client
	runID     uuid.UUID
	offset    int64
	lastID    string // of the last event; empty before the first
	fn        func(Chunk) error
	connected bool // once at least
	progress  bool // an event or a heartbeat since the last loss: the stream did work
}

// connect follows one connection. It returns the end, or why there is none yet.
func (f *follower) connect(ctx context.Context) (*api.RunEnd, error) {
	const doing = "follow the log"
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	follow := true
	params := api.GetRunLogParams{Follow: &follow, Offset: &f.offset}
	if f.lastID != "" {
		params.LastEventID = &f.lastID
	}
	response, err := f.client.api.GetRunLog(ctx, f.runID, &params)
	if err != nil {
		return nil, f.client.explain(ctx, doing, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, err := io.ReadAll(io.LimitReader(response.Body, maxLine))
		if err != nil {
			return nil, f.client.explain(ctx, doing, err)
		}
		return nil, fmt.Errorf("%s: %w", doing, problemOf(response, body))
	}
	f.connected = true
	watch := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer watch.Stop()
	end, err := f.read(response.Body, func() { watch.Reset(silence) })
	if _, ok := errors.AsType[*callerError](err); err != nil && !ok {
		return nil, f.client.explain(ctx, doing, err)
	}
	return end, err
}

// read takes events until the stream ends. An unfinished event at the end of a stream doesn't count.
func (f *follower) read(body io.Reader, alive func()) (*api.RunEnd, error) {
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	var event event
	for lines.Scan() {
		alive()
		line := lines.Text()
		if line != "" {
			event.field(line)
			f.progress = f.progress || event.id != "" || line[0] == ':'
			continue
		}
		end, err := f.dispatch(event)
		if end != nil || err != nil {
			return end, err
		}
		event.reset()
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	return nil, io.ErrUnexpectedEOF
}

func (f *follower) dispatch(e event) (*api.RunEnd, error) {
	switch e.kind {
	case "log":
		var data api.LogChunk
		if err := json.Unmarshal([]byte(e.data), &data); err != nil {
			return nil, fmt.Errorf("decode an event: %w", err)
		}
		end, err := strconv.ParseInt(e.id, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("decode an event's id: %w", err)
		}
		if err := f.fn(Chunk{Offset: data.Offset, End: end, Text: data.Text}); err != nil {
			return nil, &callerError{err}
		}
		f.lastID = e.id
	case "end":
		var end api.RunEnd
		if err := json.Unmarshal([]byte(e.data), &end); err != nil {
			return nil, fmt.Errorf("decode the end: %w", err)
		}
		return &end, nil
	}
	return nil, nil //nolint:nilnil // no end yet, and nothing wrong
}

// event is one server-sent event as it is read line by line.
type event struct {
	kind, id, data string
}

func (e *event) reset() { *e = event{} }

func (e *event) field(line string) {
	name, text, _ := strings.Cut(line, ":")
	text = strings.TrimPrefix(text, " ")
	switch name {
	case "event":
		e.kind = text
	case "id":
		e.id = text
	case "data":
		if e.data != "" {
			e.data += "\n"
		}
		e.data += text
	}
}
