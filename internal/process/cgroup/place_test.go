package cgroup

import (
	"path/filepath"
	"testing"
)

func TestPlace(t *testing.T) {
	t.Parallel()
	const (
		plain  = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
		hybrid = "10 31 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n11 32 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n20 41 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
		part   = "30 23 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n"
	)
	for _, tt := range []struct{ name, cgroups, mounts, want string }{
		{"one hierarchy", "0::/system.slice/orch.service\n", plain, "/sys/fs/cgroup/system.slice/orch.service"},
		{"the root", "0::/\n", plain, "/sys/fs/cgroup"},
		{"beside version 1", "8:pids:/\n4:memory:/api\n0::/user.slice\n", hybrid, "/sys/fs/cgroup/unified/user.slice"},
		{"a part is mounted", "0::/docker/abc/x\n", part, "/sys/fs/cgroup/x"},
		{"another part is mounted", "0::/docker/abcd\n", part, ""},
		{"outside the namespace", "0::/../other\n", plain, ""},
		{"version 1 only", "8:pids:/\n", hybrid, ""},
		{"not mounted", "0::/\n", "10 31 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n", ""},
	} {
		if got, ok := place(tt.cgroups, tt.mounts); got != tt.want || ok != (tt.want != "") {
			t.Errorf("%s: %q, %v", tt.name, got, ok)
		}
	}
}

func TestOnlyTheRunsOwnCgroupIsBelieved(t *testing.T) {
	t.Parallel()
	good := "/sys/fs/cgroup/x/" + name("run")
	if Of("run", good) != good {
		t.Error("its own isn't")
	}
	for _, path := range []string{"", "/sys/fs/cgroup", "relative/" + name("run"), "/a/../" + name("run"), "/x/" + name("other"), good + "/below"} {
		if got := Of("run", path); got != Of("run", "") || filepath.Base(got) != name("run") && got != "" {
			t.Errorf("%q", got)
		}
	}
}
