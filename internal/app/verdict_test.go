package app

import (
	"testing"

	"github.com/google/uuid"

	"orch/internal/merge/lease"
	"orch/internal/process"
)

// A clone of this machine has its name and another boot. What it holds is not taken from it on the strength of that.
func TestMachineOfTheSameNameIsNotDead(t *testing.T) {
	t.Parallel()
	self, err := process.Self()
	if err != nil {
		t.Fatal(err)
	}
	own, other := uuid.New(), uuid.New()
	holder := func(root uuid.UUID, change func(h *lease.Holder)) lease.Holder {
		h := lease.Holder{
			RootID: root, Host: self.Host, BootID: self.BootID, PIDNamespace: self.PIDNamespace, PID: self.PID, PIDStartedAt: self.StartedAt,
		}
		change(&h)
		return h
	}
	same := func(*lease.Holder) {}
	rebooted := func(h *lease.Holder) { h.BootID = uuid.NewString() }
	reused := func(h *lease.Holder) { h.PIDStartedAt++ }
	for name, tt := range map[string]struct {
		holder lease.Holder
		want   lease.Verdict
	}{
		"this process":                           {holder(own, same), lease.Alive},
		"this root, before a boot":               {holder(own, rebooted), lease.Dead},
		"another root, of another boot":          {holder(other, rebooted), lease.Unknown},
		"another root, whose pid is reused":      {holder(other, reused), lease.Dead},
		"another root, in a living process":      {holder(other, same), lease.Alive},
		"another root, in another pid namespace": {holder(other, func(h *lease.Holder) { h.PIDNamespace = "pid:[1]" }), lease.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := judge(own, self, tt.holder); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}
