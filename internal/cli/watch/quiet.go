package watch

import (
	"encoding/json"
	"io"

	"orch/api"
)

// Silent reports nothing.
type Silent struct{}

// Event implements Reporter.
func (Silent) Event(api.TaskEvent) {}

// RunStarted implements Reporter.
func (Silent) RunStarted(api.Run) {}

// RunLog implements Reporter.
func (Silent) RunLog(string) {}

// RunEnded implements Reporter.
func (Silent) RunEnded(api.RunEnd) {}

// Now implements Reporter.
func (Silent) Now(api.TaskDetail) {}

// JSONLines reports the same as one JSON object a line, for programs.
type JSONLines struct{ out *json.Encoder }

// NewJSONLines reports to out.
func NewJSONLines(out io.Writer) *JSONLines { return &JSONLines{json.NewEncoder(out)} }

func (j *JSONLines) write(kind string, value any) {
	_ = j.out.Encode(map[string]any{"type": kind, kind: value}) //nolint:errchkjson // a reader that went away ends nothing
}

// Event implements Reporter.
func (j *JSONLines) Event(e api.TaskEvent) { j.write("event", e) }

// RunStarted implements Reporter.
func (j *JSONLines) RunStarted(r api.Run) { j.write("run", r) }

// RunLog implements Reporter.
func (j *JSONLines) RunLog(text string) { j.write("log", text) }

// RunEnded implements Reporter.
func (j *JSONLines) RunEnded(e api.RunEnd) { j.write("run_end", e) }

// Now implements Reporter.
func (j *JSONLines) Now(api.TaskDetail) {}

// Result reports the task as it ended.
func (j *JSONLines) Result(d api.TaskDetail) { j.write("task", d.Task) }
