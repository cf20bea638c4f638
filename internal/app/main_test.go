package app

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"orch/internal/config"
	"orch/internal/process/shim"
	"orch/internal/testhost"
)

// variables are what there was of ORCH_* outside. The processes that tests start see none of it.
var variables = map[string]string{}

// The test binary is also orch and its shims, so that tests can kill them.
func TestMain(m *testing.M) {
	if err := testhost.Become(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if len(os.Args) == 3 {
		switch os.Args[1] {
		case "shim":
			os.Exit(shim.Run(os.Args[2]))
		case "serve":
			os.Exit(run(Serve, until(os.Args[2])))
		case "panics":
			os.Exit(run(Serve, panics(os.Args[2])))
		case "blocks":
			os.Exit(run(Serve, blocks(os.Args[2])))
		case "obey":
			os.Exit(run(Serve, (&orderly{dir: os.Args[2]}).at))
		case "work":
			os.Exit(run(Work, (&orderly{dir: os.Args[2]}).at))
		case "serve-night":
			os.Exit(runAtNight(Serve, os.Args[2]))
		case "work-night":
			os.Exit(runAtNight(Work, os.Args[2]))
		}
	}
	for _, entry := range os.Environ() {
		if name, value, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "ORCH_") && name != "ORCH_POSTGRES_BIN" {
			_ = os.Unsetenv(name)
			variables[name] = value
		}
	}
	goleak.VerifyTestMain(m)
}

// until dies at a point without another word; "" is none.
func until(point string) func(at string) {
	return func(at string) {
		if at == point {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
	}
}

// panics panics at a point each time that it is reached.
func panics(point string) func(at string) {
	return func(at string) {
		if at == point {
			panic("told to panic at " + point)
		}
	}
}

// blocks goes no further than a point.
func blocks(point string) func(at string) {
	return func(at string) {
		if at == point {
			select {}
		}
	}
}

// run is a process of orch as the environment says. It tells when it is up.
func run(orch func(context.Context, Options) error, at func(point string)) int {
	return runWith(orch, Options{Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)), FailUnready: true, At: at})
}

func runWith(orch func(context.Context, Options) error, opts Options) int {
	cfg, _, err := config.Load(nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	opts.Config, opts.SocketOnly, opts.Ready = cfg, true, func(Started) { fmt.Println("up") }
	if err := orch(ctx, opts); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
