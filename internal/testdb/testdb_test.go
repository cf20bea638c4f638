package testdb

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func TestNew_IsMigratedAndApart(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	a, b := New(t), New(t)
	if _, err := a.Exec(ctx, "insert into counters (name, total) values ('x', 1)"); err != nil {
		t.Fatal(err)
	}
	var n int
	if err := b.QueryRow(ctx, "select count(*) from counters").Scan(&n); err != nil || n != 0 {
		t.Fatalf("counters of another test's database: %d, %v", n, err)
	}
	conn, err := pgx.Connect(ctx, URL(ConnConfig(a)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if err := conn.QueryRow(ctx, "select total from counters").Scan(&n); err != nil || n != 1 {
		t.Fatalf("by URL: %d, %v", n, err)
	}
}

func TestEmpty(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	conn, err := pgx.ConnectConfig(ctx, Empty(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	var n int
	if err := conn.QueryRow(ctx, "select count(*) from pg_class where relnamespace = 'public'::regnamespace").Scan(&n); err != nil || n != 0 {
		t.Fatalf("relations: %d, %v", n, err)
	}
}

func BenchmarkNew(b *testing.B) {
	began := time.Now()
	New(b)
	b.ReportMetric(float64(time.Since(began).Milliseconds()), "boot-ms")
	for b.Loop() {
		if _, err := New(b).Exec(b.Context(), "select 1"); err != nil {
			b.Fatal(err)
		}
	}
}
