package shim

import (
	"fmt"
	"os"
	"sync"

	"orch/internal/process"
	"orch/internal/process/runlog"
	"orch/internal/transcript"
)

// listener understands what the program prints.
type listener interface {
	Write(b []byte) (int, error)
	Finish()
	Said() transcript.Said
	Changed() bool
	ToolsOpen() int
}

// output takes what the program prints, without its secrets: to the log, and to who understands it. One goroutine writes
// while another looks.
type output struct {
	// news has a value after something changed that a look would show.
	news chan struct{}

	mu     sync.Mutex
	log    *runlog.Writer
	parser listener // nil when nothing is to be understood
	tools  bool
	behind bool
	// unsaid means that there is more to say than at the last call of say.
	unsaid bool
	// said is the last that was said by a parser that has failed since.
	said transcript.Said
}

// newOutput begins the log. A format of none is not listened to.
func newOutput(dir string, spec process.Spec) (*output, error) {
	limit := spec.LogCap
	if limit == 0 {
		limit = process.DefaultLogCap
	}
	log, err := runlog.NewWriter(dir, limit)
	if err != nil {
		return nil, fmt.Errorf("take the output: %w", err)
	}
	o := &output{news: make(chan struct{}, 1), log: log}
	if spec.Format != transcript.None {
		o.parser = transcript.New(spec.Format)
	}
	return o, nil
}

// Write takes all of b.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := o.log.Write(b)
	o.hear(func() { _, _ = o.parser.Write(b) })
	if behind := o.log.Behind(); behind != o.behind {
		o.behind = behind
		o.tell()
	}
	if err != nil {
		err = fmt.Errorf("take the output: %w", err)
	}
	return n, err
}

// hear lets the parser work. Whatever it stumbles over ends neither the run nor its log, only the listening.
func (o *output) hear(work func()) {
	if o.parser == nil {
		return
	}
	defer func() {
		if problem := recover(); problem != nil {
			_, _ = fmt.Fprintf(os.Stderr, "orch shim: the output isn't understood from here on: %v\n", problem)
			o.parser, o.tools, o.unsaid = nil, false, true
			o.said.Bad++
			o.said.ToolsOpen = 0
			o.tell()
		}
	}()
	work()
	changed := o.parser.Changed() && !o.unsaid
	tools := o.parser.ToolsOpen() > 0
	if changed || tools != o.tools {
		o.unsaid, o.tools = true, tools
		o.tell()
	}
}

func (o *output) tell() {
	select {
	case o.news <- struct{}{}:
	default: // who is told looks at everything
	}
}

// look is what there is to do: to say more, to write what had no room, to wait for a tool.
func (o *output) look() (unsaid, behind, tools bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.unsaid, o.behind, o.tools
}

// say is everything that was said; false when nothing is listened to.
func (o *output) say() (transcript.Said, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sayLocked()
}

func (o *output) sayLocked() (transcript.Said, bool) {
	o.unsaid = false
	o.hear(func() { o.said = o.parser.Said() })
	return o.said, o.parser != nil || o.said.Bad > 0
}

// catchUp writes what had no room.
func (o *output) catchUp() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.log.Retry()
	o.behind = o.log.Behind()
}

// close takes what was printed last for all there is, and makes the log durable.
func (o *output) close() (said transcript.Said, spoke bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hear(func() { o.parser.Finish() })
	said, spoke = o.sayLocked()
	return said, spoke, o.log.Close() //nolint:wrapcheck // it says what it is
}

// sizes are those of all output and of what was lost of it.
func (o *output) sizes() (all, lost int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.log.Size(), o.log.Lost()
}

// sleepsOnLimits reports whether the last word of a program is that it has run into a limit, of one that then sleeps until
// that is over instead of giving up. What follows from the limit, others decide.
func sleepsOnLimits(format transcript.Format, said transcript.Said) bool {
	return format == transcript.OpenCode && said.Limited()
}
