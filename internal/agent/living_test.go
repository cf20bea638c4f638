package agent

import "testing"

func TestCountLiving(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	count := func() int {
		t.Helper()
		n, err := b.runs.CountLiving(t.Context(), b.task)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := count(); n != 0 {
		t.Errorf("%d before any run", n)
	}
	res := b.execute(t, b.claim(t), b.request(`true`))
	if n := count(); n != 0 {
		t.Errorf("%d after the run has ended", n)
	}
	if _, err := b.pool.Exec(t.Context(), `update runs set state = 'running', finished_at = null, ended = null where id = $1`, res.RunID); err != nil {
		t.Fatal(err)
	}
	if n := count(); n != 1 {
		t.Errorf("%d while one lives", n)
	}
}
