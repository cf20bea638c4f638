package foreign_test

import (
	"encoding/json"
	"strings"
	"testing"

	"orch/internal/transcript/foreign"
)

func TestTextIsBoundedAndClean(t *testing.T) {
	t.Parallel()
	if got := foreign.Text(" a\x00b\xff\x1b[31mc\u0085\n\td ", foreign.Short); got != "ab[31mc\n\td" {
		t.Errorf("%q", got)
	}
	for _, long := range []string{strings.Repeat("<\"\u2028", 1000), strings.Repeat("ä\n", 1000), strings.Repeat("\U0001f600", 1000)} {
		raw, err := json.Marshal(foreign.Text(long, foreign.Short))
		if err != nil || len(raw) > foreign.Short+len(`""`) || len(raw) < foreign.Short-10 {
			t.Errorf("%d bytes: %s, %v", len(raw), raw, err)
		}
	}
}

func TestLineIsWhatPeopleRead(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"\x1b[1mb\x00o\xffld\x1b[0m\t.": "bold\t.", "  \r": "", "a\x1b[": "a", "\x1b]0;t\x07": "]0;t",
	} {
		if got := foreign.Line([]byte(raw)); got != want {
			t.Errorf("%q: %q, want %q", raw, got, want)
		}
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"unexpected status 429: no": 429, "status: 503": 503, "status 200, then status 401": 401, "429": 0, "status 4290": 0, "status": 0, "": 0,
	} {
		if got := foreign.Status(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func TestNumbersMayBeAnything(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]int64{`5`: 5, `1e300`: foreign.MaxTokens, `0`: 0, `-1`: -1, `"5"`: -1, `null`: -1, `{}`: -1, `[]`: -1} {
		var n foreign.Number
		if err := json.Unmarshal([]byte(raw), &n); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
		got := int64(-1)
		if count := foreign.Count[int64](n, foreign.MaxTokens); count != nil {
			got = *count
		}
		if got != want {
			t.Errorf("%s: %d, want %d", raw, got, want)
		}
		if usd := n.USD(); (usd != nil) != (want >= 0 && want <= foreign.MaxCost) {
			t.Errorf("%s is %v dollars", raw, usd)
		}
	}
}

func TestMomentsMayBeAnything(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]int64{
		`1787520600`: 1787520600, `1787520600000`: 1787520600, `"2026-08-23T21:30:00Z"`: 1787520600, `1e300`: 0, `-1`: 0, `"x"`: 0, `null`: 0, `{}`: 0,
	} {
		var m foreign.Moment
		if err := json.Unmarshal([]byte(raw), &m); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
		if got := m.Unix(); m.IsZero() != (want == 0) || want != 0 && got != want {
			t.Errorf("%s: %v", raw, m)
		}
		if _, err := json.Marshal(m.Time); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
	}
}
