package app

import (
	"io"
	"log/slog"
	"time"

	"github.com/lmittmann/tint"
	"golang.org/x/term"

	"orch/internal/db"
)

// NewLogger writes to w: for a person on a terminal, one JSON object a line elsewhere. No error in it tells where the
// database is. format is auto, text or json.
func NewLogger(w io.Writer, level slog.Level, format string) *slog.Logger {
	if format == "auto" {
		format = "json"
		if f, ok := w.(interface{ Fd() uintptr }); ok && term.IsTerminal(int(f.Fd())) {
			format = "text"
		}
	}
	if format == "text" {
		file, ok := w.(interface{ Fd() uintptr })
		colour := ok && term.IsTerminal(int(file.Fd()))
		return slog.New(db.LogHandler(tint.NewTextHandler(w, &tint.Options{Level: level, TimeFormat: "15:04:05.000", NoColor: !colour})))
	}
	return slog.New(db.LogHandler(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: spelled})))
}

// spelled has JSON say durations as people do: nobody reads 600000000000 as ten minutes.
func spelled(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().Round(time.Millisecond).String())
	}
	return a
}
