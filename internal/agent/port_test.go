package agent

import (
	"strconv"
	"strings"
	"testing"
)

func ported(c *Config) { c.PortBase, c.PortsPerRun = 20000, 20 }

func TestTwoLivingRunsNeverShareAPort(t *testing.T) {
	t.Parallel()
	b := newBench(t, ported)
	l := b.claim(t)
	const runs = 5
	answers := make([]<-chan answer, runs)
	for i := range answers {
		req := b.request(`echo "$ORCH_PORT $ORCH_PORT_COUNT"; ` + waiting)
		req.Key = strconv.Itoa(i)
		answers[i] = b.executing(t, l, req)
	}
	eventually(t, "all run", func() bool {
		living := b.list(t)
		for _, run := range living {
			if run.State != StateRunning {
				return false
			}
		}
		return len(living) == runs
	})
	b.letGo(t)
	seen := map[string]bool{}
	for _, one := range answers {
		got := <-one
		ports, _, _ := strings.Cut(got.LogTail, "\n")
		if got.err != nil || seen[ports] || !strings.HasSuffix(ports, " 20") {
			t.Errorf("%q, seen %v: %v", ports, seen[ports], got.err)
		}
		seen[ports] = true
	}
	for slot := range runs { // the lowest ones
		if ports := strconv.Itoa(20000+20*slot) + " 20"; !seen[ports] {
			t.Errorf("nobody has %s", ports)
		}
	}
}

func TestSlotIsFreeOnlyWhenTheEndIsNoted(t *testing.T) {
	t.Parallel()
	b := newBench(t, ported)
	l := b.claim(t)
	slot := func(key string) int {
		t.Helper()
		req := b.request("true")
		req.Key = key
		res := b.ended(t, l, req)
		run, err := b.runs.Get(t.Context(), res.RunID)
		if err != nil || run.Slot == nil {
			t.Fatalf("%+v, %v", run, err)
		}
		return *run.Slot
	}
	if got := slot("a"); got != 0 {
		t.Errorf("slot %d", got)
	}
	if got := slot("b"); got != 0 {
		t.Errorf("after the end: slot %d", got)
	}
	b.insertIntent(t, 0)
	b.exec(t, `update runs set slot = 0, key = 'lives' where state = 'intended'`)
	if got := slot("c"); got != 1 {
		t.Errorf("beside one that lives: slot %d", got)
	}
}

func TestWithoutPortsThereIsNoSlot(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	res := b.execute(t, b.claim(t), b.request(`echo "${ORCH_PORT-none}"`))
	if run := b.list(t)[0]; run.Slot != nil || res.LogTail != "none\n" {
		t.Errorf("%+v, %q", run, res.LogTail)
	}
}
