package shim

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"pgregory.net/rapid"

	"orch/internal/process"
	"orch/internal/process/contact"
	"orch/internal/process/runtest"
	"orch/internal/transcript"
)

const sec, hour = int64(time.Second), int64(time.Hour)

func TestNextDeadline(t *testing.T) {
	t.Parallel()
	spec := process.Spec{Timeout: time.Hour, StallTimeout: 10 * time.Minute, ToolStallTimeout: 30 * time.Minute, OrphanGrace: 2 * time.Hour, Contact: 90 * sec}
	with := func(change func(*process.Spec)) process.Spec {
		s := spec
		change(&s)
		return s
	}
	for _, tt := range []struct {
		name string
		spec process.Spec
		heard
		at  int64
		why process.Why
	}{
		{"no limits", process.Spec{}, heard{}, never, ""},
		{"silence from the start", spec, heard{}, 100*sec + 600*sec, process.WhyStalled},
		{"silence", spec, heard{output: 500 * sec}, 1100 * sec, process.WhyStalled},
		{"a tool runs", spec, heard{output: 500 * sec, tools: true}, 2300 * sec, process.WhyStalled},
		{"a tool runs without a limit of its own", with(func(s *process.Spec) { s.ToolStallTimeout = 0 }), heard{output: 500 * sec, tools: true}, 1100 * sec, process.WhyStalled},
		{"sleeps until a limit is over", spec, heard{output: 500 * sec, limited: true}, 800 * sec, process.WhyStalled},
		{"a tool runs in spite of a limit", spec, heard{output: 500 * sec, limited: true, tools: true}, 2300 * sec, process.WhyStalled},
		{"sleeps and may", with(func(s *process.Spec) { s.StallTimeout = 0 }), heard{output: 500 * sec, limited: true}, 100*sec + hour, process.WhyTimeout},
		{"timeout", spec, heard{output: 3600 * sec}, 100*sec + hour, process.WhyTimeout},
		{"nobody in contact", with(func(s *process.Spec) { s.Timeout, s.StallTimeout = 0, 0 }), heard{}, 90*sec + 2*hour, process.WhyOrphaned},
		{"contact isn't known", with(func(s *process.Spec) { s.Timeout, s.StallTimeout, s.Contact = 0, 0, 0 }), heard{}, 100*sec + 2*hour, process.WhyOrphaned},
		{"longer than there is time", process.Spec{Timeout: never}, heard{}, never, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if at, why := newDeadlines(tt.spec, 100*sec).next(tt.heard); at != tt.at || why != tt.why {
				t.Fatalf("%s at %v; want %s at %v", why, time.Duration(at), tt.why, time.Duration(tt.at))
			}
		})
	}
}

// asleep is a run of a host whose orch was in contact until the machine fell asleep.
func asleep(spec process.Spec) *deadlines {
	spec.OrphanGrace, spec.OrphanPatience, spec.Contact = 2*time.Hour, time.Hour-40*time.Second, 1000*sec
	return newDeadlines(spec, 1000*sec)
}

func TestMachineAsleepForTwoHours(t *testing.T) {
	t.Parallel()
	const due = 1000*sec + 2*hour // when the run is orphaned
	none := func() (int64, error) { return 0, contact.ErrNone }
	after := func(at int64) func() (int64, error) { return func() (int64, error) { return at, nil } }
	type look struct {
		at    int64
		sees  func() (int64, error)
		ends  bool
		again int64 // when the next look is due
	}
	for name, looks := range map[string][]look{
		"awake all along and nobody in contact": {{due, none, true, due}},
		"awake all along and in contact":        {{due, after(due - 20*sec), false, due - 20*sec + 2*hour}},
		"awake a little late":                   {{due + 9*sec, none, true, due}},
		"orch comes back after it woke up": {
			{due + 60*sec, none, false, due + 180*sec},
			{due + 180*sec, after(due + 90*sec), false, due + 90*sec + 2*hour},
		},
		"orch doesn't come back after it woke up": {
			{due + 60*sec, none, false, due + 180*sec},
			{due + 180*sec, none, true, due + 180*sec},
		},
		"orch was faster":                        {{due + 60*sec, after(due + 50*sec), false, due + 50*sec + 2*hour}},
		"asleep until another host has the job":  {{due + hour, none, true, due + hour - 40*sec}},
		"woke up just before another host would": {{due + hour - 100*sec, none, false, due + hour - 40*sec}, {due + hour - 40*sec, none, true, due + hour - 40*sec}},
		"asleep again": {
			{due + 60*sec, none, false, due + 180*sec},
			{due + 1800*sec, none, false, due + 1920*sec},
			{due + 4000*sec, none, true, due + hour - 40*sec},
		},
		"contact can't be read":  {{due, func() (int64, error) { return 0, errors.ErrUnsupported }, true, due}},
		"contact in the future":  {{due, after(due + 50*hour), false, due + 2*hour}},
		"contact of long before": {{due, after(500 * sec), true, due}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := asleep(process.Spec{})
			for i, look := range looks {
				if got := d.orphaned(look.at, look.sees); got != look.ends {
					t.Fatalf("look %d: orphaned %v", i, got)
				}
				if at, why := d.next(heard{}); at != look.again || why != process.WhyOrphaned {
					t.Fatalf("look %d: again %v after it is due", i, time.Duration(at-due))
				}
			}
		})
	}
	t.Run("its own limits are used up", func(t *testing.T) {
		t.Parallel()
		d := asleep(process.Spec{Timeout: 90 * time.Minute})
		if at, why := d.next(heard{}); why != process.WhyTimeout || at > due {
			t.Fatalf("%s at %v", why, time.Duration(at))
		}
	})
}

// TestDeadlinesNeverMiss lets contacts, sleep and looks come in any order, and looks whenever a timer would fire.
func TestDeadlinesNeverMiss(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		grace, patience := rapid.Int64Range(1, 1000).Draw(rt, "grace")*sec, rapid.Int64Range(0, 1000).Draw(rt, "patience")*sec
		now, last := 1000*sec, 1000*sec
		d := newDeadlines(process.Spec{OrphanGrace: time.Duration(grace), OrphanPatience: time.Duration(patience), Contact: last}, now)
		for range 40 {
			at, _ := d.next(heard{})
			if at < now {
				rt.Fatalf("a look that is due is missing: %v ago", time.Duration(now-at))
			}
			if slept := rapid.Int64Range(0, 2000).Draw(rt, "sleep"); rapid.Bool().Draw(rt, "sleeps") {
				now = at + slept*sec
			} else {
				now = at
			}
			if rapid.Bool().Draw(rt, "contact") {
				last = max(last, now-rapid.Int64Range(0, 2000).Draw(rt, "age")*sec)
			}
			ends := d.orphaned(now, func() (int64, error) { return last, nil })
			switch {
			case ends && now < last+grace:
				rt.Fatalf("ended in contact, %v ago", time.Duration(now-last))
			case !ends && now >= last+grace+patience:
				rt.Fatalf("lives %v after the last contact", time.Duration(now-last))
			case ends:
				return
			}
		}
	})
}

func orphanGrace(d time.Duration) func(*process.Spec) {
	return func(s *process.Spec) { s.OrphanGrace, s.Contact = d, process.BootClock() }
}

func TestOrphanedWhenNobodyIsInContact(t *testing.T) {
	t.Parallel()
	r, _ := runtest.Start(t, "exec sleep 1000", orphanGrace(100*time.Millisecond))
	if exit := runtest.Wait(t, r); exit.Why != process.WhyOrphaned || exit.Signal != "SIGTERM" {
		t.Fatal(runtest.Show(exit))
	}
}

func TestContactOfAWaitingOrchExtends(t *testing.T) {
	t.Parallel()
	const grace = 2 * time.Second
	var before int64
	dir, work := runtest.Create(t, "until [ -e go ]; do sleep 0.01; done; exit 3", orphanGrace(grace), func(s *process.Spec) { before = s.Contact })
	if err := contact.Write(filepath.Dir(dir), before+int64(time.Hour)); err != nil { // of now, whenever that is
		t.Fatal(err)
	}
	r := runtest.Launch(t, dir)
	runtest.Started(t, r)
	runtest.Eventually(t, "a time beyond the first deadline", func() bool { return process.BootClock() > before+int64(grace+grace/2) })
	if st := runtest.Started(t, r); st.Status != process.StatusAlive {
		t.Fatalf("%+v", st)
	}
	if err := os.WriteFile(filepath.Join(work, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	runtest.WantCode(t, runtest.Wait(t, r), 3)
}

func TestContactOfAnotherBootDoesNotCount(t *testing.T) {
	t.Parallel()
	dir, _ := runtest.Create(t, "exec sleep 1000", orphanGrace(100*time.Millisecond))
	other := "00000000-0000-4000-8000-000000000000 7000000000000000000 37fbf5a4\n"
	if err := os.WriteFile(filepath.Join(filepath.Dir(dir), "contact"), []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	if exit := runtest.Wait(t, runtest.Launch(t, dir)); exit.Why != process.WhyOrphaned {
		t.Fatal(runtest.Show(exit))
	}
}

func TestOnlyWhoSleepsOnLimitsIsLimited(t *testing.T) {
	t.Parallel()
	standing := func(status int, text string) transcript.Said {
		return transcript.Said{Error: &transcript.Error{Status: status, Text: text}}
	}
	for _, tt := range []struct {
		name   string
		format transcript.Format
		said   transcript.Said
		want   bool
	}{
		{"status", transcript.OpenCode, standing(429, ""), true},
		{"words", transcript.OpenCode, standing(0, "AI_APICallError: Usage limit reached for 5 hour."), true},
		{"another error", transcript.OpenCode, standing(500, "Cannot connect to API"), false},
		{"nothing wrong", transcript.OpenCode, transcript.Said{}, false},
		{"one that gives up by itself", transcript.Claude, standing(429, "rate limit"), false},
	} {
		if got := sleepsOnLimits(tt.format, tt.said); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}
