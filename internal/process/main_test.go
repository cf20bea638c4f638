package process_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"orch/internal/process"
	"orch/internal/process/runtest"
	"orch/internal/process/shim"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 {
		switch os.Args[1] {
		case "shim":
			os.Exit(shim.Run(os.Args[2]))
		case "launcher": // starts a shim and lives until it is killed
			if _, err := process.Launch(context.Background(), runtest.Shim(), os.Args[2], process.Bundle{Env: runtest.Env()}); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			fmt.Println("launched")
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(0)
		case "container": // is a pid namespace with a launcher in it
			must(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
			must(unix.Mount("proc", "/proc", "proc", 0, ""))
			must(unix.Exec(os.Args[0], []string{os.Args[0], "launcher", os.Args[2]}, os.Environ()))
		case "deaf": // has a run in its hands, as a shim would, and does nothing about it
			signal.Ignore(unix.SIGTERM)
			self, err := process.Self()
			must(err)
			hold, err := process.TakeHold(os.Args[2])
			must(err)
			must(hold.WritePIDs(process.PIDs{Shim: self}))
			fmt.Println("deaf")
			_, _ = io.Copy(io.Discard, os.Stdin)
		case "blind": // says what a process sees that others are hidden from, or everything
			var id process.Identity
			must(json.Unmarshal([]byte(os.Args[2]), &id))
			must(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
			if os.Getenv("PROC") == "none" {
				must(unix.Mount("tmpfs", "/proc", "tmpfs", 0, ""))
			} else {
				const nobody = 65534
				must(unix.Mount("proc", "/proc", "proc", 0, "hidepid=2"))
				must(syscall.Setgroups(nil))
				must(syscall.Setresgid(nobody, nobody, nobody))
				must(syscall.Setresuid(nobody, nobody, nobody))
			}
			_, err := os.Stat("/proc/" + strconv.Itoa(id.PID))
			fmt.Println(process.Probe(id), os.IsNotExist(err))
			os.Exit(0)
		case "misled": // says whether it knows that /proc isn't its own namespace's, and what it sees there of somebody
			var id process.Identity
			must(json.Unmarshal([]byte(os.Args[2]), &id))
			id.PIDNamespace, _ = os.Readlink("/proc/self/ns/pid") // as a process of this namespace would be named
			_, err := process.Self()
			fmt.Println(errors.Is(err, process.ErrForeignProc), process.Probe(id))
			os.Exit(0)
		case "namespaced": // says who it is, and what it thinks of somebody
			must(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
			must(unix.Mount("proc", "/proc", "proc", 0, ""))
			var id process.Identity
			must(json.Unmarshal([]byte(os.Args[2]), &id))
			self, err := process.Self()
			must(err)
			if number, _, found := strings.Cut(self.PIDNamespace, "@"); found && id.IsZero() { // one that had its number before
				id = self
				id.PIDNamespace = number + "@1"
			}
			must(json.NewEncoder(os.Stdout).Encode([]any{self, process.Probe(id)}))
			os.Exit(0)
		case "probe": // says what an unprivileged process sees of a pid
			pid, _ := strconv.Atoi(os.Args[2])
			id, err := process.IdentityOf(pid)
			fmt.Println(process.Probe(id), errors.Is(unix.Kill(pid, 0), unix.EPERM), err)
			os.Exit(0)
		}
	}
	goleak.VerifyTestMain(m)
}

// must is for helper processes, whose messages the test's are.
func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// helper starts this test binary in another role and gives the first line that it prints.
func helper(t *testing.T, configure func(*exec.Cmd), args ...string) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Stderr = os.Stderr
	if configure != nil {
		configure(cmd)
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return cmd, strings.TrimSpace(line)
}
