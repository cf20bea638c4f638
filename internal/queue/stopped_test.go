package queue_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/db"
	"orch/internal/queue"
	"orch/internal/queue/queuetest"
	"orch/internal/queue/tally"
	"orch/internal/testdb"
)

const (
	stoppedURL  = "ORCH_TEST_STOPPED_URL" // set in the process that is stopped
	stoppedRoot = "ORCH_TEST_STOPPED_ROOT"
	sayPrefix   = "## " // of the lines that it says to its parent

	beatName, openName, batchName = "beat", "open transaction", "batch on its way"
)

// lateWrites are all that a worker may try when it is continued, by name.
func lateWrites() []string {
	return append(slices.Sorted(maps.Keys(writes(context.Background(), nil))), beatName, openName, batchName)
}

// A worker process is stopped past its TTL, another one takes its jobs over and finishes half of them, and the process
// is continued: all that it writes then is refused, each kind of write by name.
func TestStoppedProcessWritesNothingWhenItGoesOn(t *testing.T) {
	if url := os.Getenv(stoppedURL); url != "" {
		beStopped(t, url, uuid.MustParse(os.Getenv(stoppedRoot)))
		return
	}
	t.Parallel()
	b := newBench(t, queue.Config{})
	names := lateWrites()
	byName := map[string]int64{}
	for _, name := range names {
		byName[name] = b.Enqueue(queue.Insert{})
	}
	child := startChild(t, b)
	child.waitFor("claimed")
	unlock := b.lock(byName[batchName])
	child.tell()
	child.waitFor("writing")
	b.untilWaiting() // the batch, for the row
	child.signal(syscall.SIGSTOP)
	queuetest.Until(t, "it is stopped", child.stopped)
	unlock()

	other := b.worker(b.W.RootID)
	queuetest.Until(t, "its leases have run out", func() bool {
		if _, err := queuetest.TakeExpired(t.Context(), b.Pool, b.Q); db.Code(err) != db.CodeLock { // then the next time
			b.No(err)
		}
		return b.Count(`select count(*) from jobs where state = 'running'`) == 0
	})
	taken := b.Claim(other, len(names))
	queuetest.Equal(t, "taken over", len(taken), len(names))
	for n, l := range taken {
		queuetest.Equal(t, "epoch", l.Job().Epoch, 2)
		if n%2 == 0 {
			b.No(b.complete(l))
		}
	}
	before := b.rows()

	child.signal(syscall.SIGCONT)
	child.tell()
	for _, name := range names {
		child.waitFor(name + ": " + queue.ErrLeaseLost.Error())
	}
	child.waitFor("done")
	queuetest.Equal(t, "rows", b.rows(), before)
	queuetest.Equal(t, "child jobs and counters", b.Count(`select (select count(*) from jobs where kind = 'child') + (select count(*) from counters)`), 0)
	queuetest.Equal(t, "total", b.succeeded(), (len(names)+1)/2)
	for n, l := range taken {
		if n%2 == 1 {
			b.No(b.complete(l))
		}
	}
}

// rows is the whole table as text.
func (b *bench) rows() (text string) {
	b.T.Helper()
	b.No(b.Pool.QueryRow(b.T.Context(), `select string_agg(j::text, E'\n' order by id) from jobs j`).Scan(&text))
	return text
}

// beStopped is the process that is stopped.
func beStopped(t *testing.T, url string, root uuid.UUID) {
	t.Helper()
	ctx := t.Context()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	b := benchOn(t, pool, pool, root, queue.Config{LeaseTTL: 2 * time.Second})
	names := lateWrites()
	leases := map[string]*queue.Lease{}
	for n, l := range b.Claim(b.W, len(names)) {
		leases[names[n]] = l
	}
	in := bufio.NewReader(os.Stdin)
	told := func() {
		if _, err := in.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	say("claimed")
	told()
	goOn, results := make(chan struct{}), make(chan [2]string, 2)
	inTx := make(chan struct{})
	go func() {
		l := leases[openName]
		err := l.Tx(ctx, func(tx pgx.Tx) error {
			if err := tally.AddCounterTx(ctx, tx, "late", 1); err != nil {
				return err
			}
			close(inTx)
			<-goOn
			return l.CompleteTx(ctx, tx)
		})
		results <- [2]string{openName, insisting(ctx, err, l)}
	}()
	<-inTx
	go func() {
		l := leases[batchName]
		err := queue.NewCompleter(b.Q, b.W, func() int { return 0 }).Complete(ctx, l)
		results <- [2]string{batchName, insisting(ctx, err, l)}
	}()
	say("writing")
	told()

	for _, name := range slices.Sorted(maps.Keys(writes(ctx, nil))) {
		say(name + ": " + verdict(writes(ctx, leases[name])[name]()))
	}
	beat, err := b.Q.Beat(ctx, b.W, []*queue.Lease{leases[beatName]})
	if err == nil && len(beat.Lost) == 1 {
		err = queue.ErrLeaseLost
	}
	say(beatName + ": " + verdict(err))
	close(goOn)
	late := map[string]string{}
	for range 2 {
		result := <-results
		late[result[0]] = result[1]
	}
	say(openName + ": " + late[openName])
	say(batchName + ": " + late[batchName])
	say("done")
}

// insisting writes an end that the database broke off as a worker does: again.
func insisting(ctx context.Context, err error, l *queue.Lease) string {
	for errors.Is(err, queue.ErrUnavailable) {
		err = completeOn(ctx, l)
	}
	return verdict(err)
}

func verdict(err error) string {
	if errors.Is(err, queue.ErrLeaseLost) {
		return queue.ErrLeaseLost.Error()
	}
	return fmt.Sprint(err)
}

func say(line string) { fmt.Println(sayPrefix + line) }

// child is the process that is stopped, seen from its parent.
type child struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.Writer
	said  chan string
}

func startChild(t *testing.T, b *bench) *child {
	t.Helper()
	exe, err := os.Executable()
	b.No(err)
	cmd := exec.Command(exe, "-test.run=^"+t.Name()+"$", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), stoppedURL+"="+testdb.URL(testdb.ConnConfig(b.Pool)), stoppedRoot+"="+b.W.RootID.String())
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	b.No(err)
	stdout, err := cmd.StdoutPipe()
	b.No(err)
	b.No(cmd.Start())
	c := &child{t: t, cmd: cmd, stdin: stdin, said: make(chan string, 100)}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			if line, ok := strings.CutPrefix(lines.Text(), sayPrefix); ok {
				c.said <- line
			} else {
				c.said <- "?" + lines.Text()
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-read
		_ = cmd.Wait()
	})
	return c
}

// waitFor is the next line that the process says.
func (c *child) waitFor(want string) {
	c.t.Helper()
	if got := queuetest.Wait(c.t, want, c.said); got != want {
		c.t.Fatalf("the process says %q, want %q", got, want)
	}
}

func (c *child) tell() {
	c.t.Helper()
	if _, err := io.WriteString(c.stdin, "go\n"); err != nil {
		c.t.Fatal(err)
	}
}

func (c *child) signal(sig syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(sig); err != nil {
		c.t.Fatal(err)
	}
}

func (c *child) stopped() bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(c.cmd.Process.Pid) + "/stat")
	if err != nil {
		c.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "T")
}
