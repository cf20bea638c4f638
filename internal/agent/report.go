package agent

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
)

// ReportStatus is how a program sees its own run.
type ReportStatus string

// What a program may say. An unknown status counts as none.
const (
	StatusOK         ReportStatus = "ok"
	StatusFailed     ReportStatus = "failed"
	StatusNeedsInput ReportStatus = "needs_input"
)

// Report is what a program said of itself in a line {"orch":{…}} of its output.
type Report struct {
	Status   ReportStatus
	CostUSD  *float64
	Summary  string
	Question string
}

const (
	// tailBytes is how much of the end of the output is looked at.
	tailBytes = 256 << 10
	// maxReportLine bounds the line of a report, maxReportText each text in it.
	maxReportLine = 64 << 10
	maxReportText = 8 << 10
	maxCostUSD    = 99999
	keptTail      = 8 << 10
)

// parseReport finds the last line of the output that is a report. The first line may be torn, as output is looked at
// from somewhere in the middle; the last one may lack its newline. Everything else is the program's own business.
func parseReport(output []byte) Report {
	for len(output) > 0 {
		line := output
		if at := bytes.LastIndexByte(output, '\n'); at >= 0 {
			line, output = output[at+1:], output[:at]
		} else {
			output = nil
		}
		if said, ok := parseLine(line); ok {
			return said
		}
	}
	return Report{}
}

func parseLine(line []byte) (Report, bool) {
	line = bytes.TrimSpace(line)
	if len(line) > maxReportLine || !bytes.HasPrefix(line, []byte("{")) || !bytes.Contains(line, []byte(`"orch"`)) {
		return Report{}, false
	}
	var wire struct {
		Orch *struct {
			Status   string   `json:"status"`
			CostUSD  *float64 `json:"cost_usd"`
			Summary  string   `json:"summary"`
			Question string   `json:"question"`
		} `json:"orch"`
	}
	if err := json.Unmarshal(line, &wire); err != nil || wire.Orch == nil {
		return Report{}, false
	}
	said := Report{Summary: clean(wire.Orch.Summary, maxReportText), Question: clean(wire.Orch.Question, maxReportText)}
	switch status := ReportStatus(wire.Orch.Status); status {
	case StatusOK, StatusFailed, StatusNeedsInput:
		said.Status = status
	}
	if cost := wire.Orch.CostUSD; cost != nil && !math.IsNaN(*cost) && *cost >= 0 && *cost <= maxCostUSD {
		said.CostUSD = cost
	}
	return said, true
}

// clean makes a text that the database takes, cut to a length at a character's boundary.
func clean(text string, limit int) string {
	if len(text) > limit {
		text = text[:limit]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(text, ""), "\x00", "")
}

// lastOf keeps the end of the output for people to read.
func lastOf(output []byte) string {
	if len(output) > keptTail {
		output = output[len(output)-keptTail:]
	}
	return clean(string(output), len(output))
}
