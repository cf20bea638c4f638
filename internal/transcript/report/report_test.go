package report_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"orch/internal/transcript/report"
)

func TestRead(t *testing.T) {
	t.Parallel()
	at := time.Unix(1787520600, 0).UTC()
	said := report.Read([]byte(`{"orch":{"status":"quota","reset_at":1787520600,"cost_usd":0.5,"turns":3,"session_id":"s1","question":"q"}}`))
	want := &report.Report{Status: report.StatusQuota, ResetAt: at, CostUSD: new(0.5), Turns: new(3), SessionID: "s1", Question: "q"}
	if !reflect.DeepEqual(said, want) {
		t.Errorf("%+v", said)
	}
	if said = report.Read([]byte(`{"orch":{"status":"of-tomorrow","reset_at":"2026-08-24T02:10:00+02:00","cost_usd":-1,"turns":"x"}}`)); said == nil ||
		said.Status != "" || said.CostUSD != nil || said.Turns != nil || said.ResetAt.Location() != time.UTC || said.ResetAt.Hour() != 0 {
		t.Errorf("%+v", said)
	}
	for _, nothing := range []string{`{}`, `{"orch":null}`, `{"orch":{}}`, `{"orch":"x"}`, `{"orch":{"other":1}}`, `{`, ``} {
		if said := report.Read([]byte(nothing)); said != nil {
			t.Errorf("%s: %+v", nothing, said)
		}
	}
}

func TestConcluding(t *testing.T) {
	t.Parallel()
	const own = `{"orch":{"status":"needs_input","question":"Which?","cost_usd":1,"session_id":"s"}}`
	for _, message := range []string{own, "Done.\n" + own, "Done.\n\n```json\n" + own + "\n```\n", "Done.\n`" + own + "`", "Done.\r\n" + own + "\r\n"} {
		said, rest, ok := report.Concluding(message)
		if !ok || !reflect.DeepEqual(said, &report.Report{Status: report.StatusNeedsInput, Question: "Which?"}) || strings.ContainsAny(rest, "{`") {
			t.Errorf("%q: %+v, %q, %v", message, said, rest, ok)
		}
	}
	if said, _, ok := report.Concluding(`{"orch":{"status":"quota","summary":"s"}}`); !ok || !reflect.DeepEqual(said, &report.Report{Summary: "s"}) {
		t.Errorf("an agent paused itself for everybody: %+v", said)
	}
	for _, message := range []string{"", "```", own + "\nMore.", "x " + own, `{"other":1}`} {
		if said, _, ok := report.Concluding(message); ok {
			t.Errorf("%q: %+v", message, said)
		}
	}
}
