package reconcile_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
)

// logs are lines of JSON.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logs) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

type line struct {
	Level  string `json:"level"`
	Msg    string `json:"msg"`
	Repair string `json:"repair"`
	Task   string `json:"task"`
	Code   string `json:"code"`
}

func (l *logs) lines() (lines []line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for raw := range strings.Lines(l.buf.String()) {
		var next line
		if err := json.Unmarshal([]byte(raw), &next); err != nil {
			panic(err)
		}
		lines = append(lines, next)
	}
	return lines
}

func (l *logs) repaired() (list []string) {
	for _, line := range l.lines() {
		if line.Msg == "repaired" && line.Level == "INFO" {
			list = append(list, line.Repair+" "+line.Task)
		}
	}
	return list
}

// complaints are the other lines, as "level message repair task code".
func (l *logs) complaints() (list []string) {
	for _, x := range l.lines() {
		if x.Msg != "repaired" {
			list = append(list, strings.Join(strings.Fields(x.Level+" "+x.Msg+" "+x.Repair+" "+x.Task+" "+x.Code), " "))
		}
	}
	return list
}
