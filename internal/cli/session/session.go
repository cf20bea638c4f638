// Package session is what each command works with: what it reads and writes, and the server that it may ask.
package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"orch/internal/cli/exit"
	"orch/internal/client"
)

// Session is that of one command.
type Session struct {
	Context  context.Context //nolint:containedctx // made for one command, passed to its Run by kong
	Out, Err io.Writer
	In       io.Reader
	// JSON says that the result is for programs.
	JSON bool
	// Server is where the server is found: by ORCH_URL, else on the data root's socket. Root is that data root.
	Server client.Config
	Root   string
}

// Connect finds the server.
func (s *Session) Connect() (*client.Client, error) { return s.ConnectFor(func(*client.Config) {}) }

// ConnectFor is Connect with more to be said to the client.
func (s *Session) ConnectFor(adjust func(*client.Config)) (*client.Client, error) {
	cfg := s.Server
	adjust(&cfg)
	c, err := client.Dial(s.Context, cfg)
	if errors.Is(err, client.ErrNoServer) {
		where := s.Root
		if cfg.URL != "" {
			where = cfg.URL
		}
		return nil, exit.With(exit.NoServer, fmt.Errorf("no server runs on %s: start one with `orch serve`, or name another with --root or ORCH_URL; "+
			"one that was started may still wait for its database, see its log", where))
	}
	return c, err
}

// Print writes a line of the command's result.
func (s *Session) Print(format string, args ...any) {
	_, _ = fmt.Fprintf(s.Out, format+"\n", args...)
}

// Say writes a closing sentence for people; programs read the JSON.
func (s *Session) Say(format string, args ...any) {
	if !s.JSON {
		s.Print(format, args...)
	}
}

// PrintJSON writes a result for programs.
func (s *Session) PrintJSON(v any) error {
	encoder := json.NewEncoder(s.Out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// Table prints rows in columns.
func (s *Session) Table(head string, rows int, row func(i int) string) error {
	w := tabwriter.NewWriter(s.Out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, head)
	for i := range rows {
		_, _ = fmt.Fprintln(w, row(i))
	}
	return w.Flush()
}
