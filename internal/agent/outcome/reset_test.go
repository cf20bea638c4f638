package outcome_test

import (
	"testing"
	"time"

	"orch/internal/agent/outcome"
)

func TestResetTimes(t *testing.T) {
	t.Parallel()
	zone := func(name string) *time.Location {
		tz, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		return tz
	}
	utc := func(text string) time.Time {
		at, err := time.Parse("2006-01-02 15:04:05", text)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	berlin := zone("Europe/Berlin")
	for _, tt := range []struct {
		text, now string
		tz        *time.Location
		want      string // empty: none
	}{
		// claude
		{"You've hit your session limit · resets 8:30am (America/Los_Angeles)", "2026-06-22 13:00:00", time.UTC, "2026-06-22 15:31:00"},
		{"You've hit your limit · resets Apr 23 at 4pm (America/Recife)", "2026-04-20 13:00:00", time.UTC, "2026-04-23 19:01:00"},
		{"resets 4pm (Europe/Berlin)", "2026-06-22 13:00:00", time.UTC, "2026-06-22 14:01:00"},
		{"resets 4pm", "2026-06-22 13:00:00", berlin, "2026-06-22 14:01:00"},
		{"resets 4pm (Moon/Crater)", "2026-06-22 13:00:00", berlin, "2026-06-22 14:01:00"},
		{"Claude AI usage limit reached|1750000000", "2025-06-15 13:00:00", time.UTC, "2025-06-15 15:06:40"},
		{"API Error (429) · Retrying in 2892 seconds… (attempt 1/10)", "2026-06-22 13:00:00", time.UTC, "2026-06-22 13:48:12"},
		// codex
		{"or try again at 5:26 PM.", "2026-06-22 13:00:00", time.UTC, "2026-06-22 17:27:00"},
		{"or try again at 5:26 PM.", "2026-06-22 13:00:00", berlin, "2026-06-22 15:27:00"},
		{"try again at Apr 28th, 2026 10:03 PM.", "2026-04-22 13:00:00", time.UTC, "2026-04-28 22:04:00"},
		{`"resets_at":1777936568,"resets_in_seconds":13872`, "2026-05-04 13:00:00", time.UTC, "2026-05-04 23:16:08"},
		{`"resets_in_seconds":13872`, "2026-05-04 13:00:00", time.UTC, "2026-05-04 16:51:12"},
		{"Please try again in 20s.", "2026-05-04 13:00:00", time.UTC, "2026-05-04 13:00:20"},
		{"try again in 1h 5m", "2026-05-04 13:00:00", time.UTC, "2026-05-04 14:05:00"},
		{"Try again later.", "2026-05-04 13:00:00", time.UTC, ""},
		// gemini
		{"Please retry in 34.07s", "2026-05-04 13:00:00", time.UTC, "2026-05-04 13:00:34"},
		{"Suggested retry after 60s.", "2026-05-04 13:00:00", time.UTC, "2026-05-04 13:01:00"},
		{"Your quota will reset after 2h13m9s.", "2026-05-04 13:00:00", time.UTC, "2026-05-04 15:13:09"},
		// opencode
		{"Your limit will reset at 2026-06-22 13:59:38", "2026-06-22 13:00:00", berlin, "2026-06-22 13:59:38"},
		{"retry-after=60", "2026-06-22 13:00:00", time.UTC, "2026-06-22 13:01:00"},
		{`"retry-after-ms":"1500"`, "2026-06-22 13:00:00", time.UTC, "2026-06-22 13:00:01"},
		// others
		{"Retry-After: 120", "2026-06-22 13:00:00", time.UTC, "2026-06-22 13:02:00"},
		{"Retry-After: Mon, 22 Jun 2026 15:00:00 GMT", "2026-06-22 13:00:00", time.UTC, "2026-06-22 15:00:00"},
		{"resets at 2026-06-22T17:00:00+02:00", "2026-06-22 13:00:00", time.UTC, "2026-06-22 15:00:00"},
		{"resets in 2 days and 3 hours", "2026-06-22 13:00:00", time.UTC, "2026-06-24 16:00:00"},
		{"resets at 15:00", "2026-06-22 13:00:00", time.UTC, "2026-06-22 15:01:00"},
		{"resets_at: 1777936568000", "2026-05-04 13:00:00", time.UTC, "2026-05-04 23:16:08"},
		{"resets_at: 99999999999", "2026-05-04 13:00:00", time.UTC, ""},
		{"resets at 2026-06-22 15:00", "2026-06-22 13:00:00", berlin, "2026-06-22 15:00:00"},
		{"resets at 2026-13-22 15:00", "2026-06-22 13:00:00", berlin, ""},
		{"resets 4pm (UTC)", "2026-06-22 13:00:00", berlin, "2026-06-22 16:01:00"},
		{"retry in 1500 ms", "2026-06-22 13:00:00", time.UTC, "2026-06-22 13:00:01"},
		{"retry in 99999999 days", "2026-06-22 13:00:00", time.UTC, "2027-07-27 13:00:00"},
		// the day before and after
		{"resets 12:30am", "2026-06-22 13:00:00", time.UTC, "2026-06-23 00:31:00"},
		{"resets 12:55pm", "2026-06-22 13:00:00", time.UTC, "2026-06-22 12:56:00"},
		{"resets 11:55pm", "2026-06-22 00:05:00", time.UTC, "2026-06-21 23:56:00"},
		{"resets Jan 2 at 4pm", "2026-12-30 13:00:00", time.UTC, "2027-01-02 16:01:00"},
		{"resets Dec 30 at 4pm", "2027-01-02 13:00:00", time.UTC, "2026-12-30 16:01:00"},
		// clocks that are put forward, and back
		{"resets 2:30am", "2026-03-28 23:00:00", berlin, "2026-03-29 01:31:00"},
		{"resets 4am", "2026-03-28 23:00:00", berlin, "2026-03-29 02:01:00"},
		{"resets 4am", "2026-10-24 23:00:00", berlin, "2026-10-25 03:01:00"},
		// no times
		{"", "2026-06-22 13:00:00", time.UTC, ""},
		{"resets 25:00", "2026-06-22 13:00:00", time.UTC, ""},
		{"resets 13pm", "2026-06-22 13:00:00", time.UTC, ""},
		{"resets Foo 1 at 4", "2026-06-22 13:00:00", time.UTC, ""},
		{"resets 99999999999999999999", "2026-06-22 13:00:00", time.UTC, ""},
		{"retry 3 times", "2026-06-22 13:00:00", time.UTC, ""},
		{"timestamp=2026-09-13T20:04:33.699Z level=ERROR", "2026-06-22 13:00:00", time.UTC, ""},
	} {
		got, ok := outcome.ResetTime(tt.text, utc(tt.now), tt.tz)
		if ok != (tt.want != "") || ok && !got.Truncate(time.Second).Equal(utc(tt.want)) {
			t.Errorf("%q: %v, %v; want %s", tt.text, got.UTC(), ok, tt.want)
		}
	}
}

func FuzzResetTime(f *testing.F) {
	for _, text := range []string{
		"resets 8:30am (America/Los_Angeles)", "resets Apr 23 at 4pm (America/Recife)", "limit reached|1750000000", "try again in 1h 5m",
		"try again at Apr 28th, 2026 10:03 PM", "retry in 34.07s", "will reset at 2026-06-22 13:59:38", "Retry-After: 120",
		"Retry-After: Mon, 22 Jun 2026 15:00:00 GMT", "retry in 999999999999999999999999d 1d", "resets 0am (//)", "resets \xff1pm",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		at, ok := outcome.ResetTime(text, now, time.UTC)
		if ok && (at.Year() < -1 || at.Year() > 10001) || !ok && !at.IsZero() {
			t.Fatalf("%q: %v, %v", text, at, ok)
		}
	})
}
