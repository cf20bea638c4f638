package app

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"orch/internal/config"
	"orch/internal/process/shim"
)

// The test binary is also orch and its shims, so that tests can kill them.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 {
		switch os.Args[1] {
		case "shim":
			os.Exit(shim.Run(os.Args[2]))
		case "serve":
			os.Exit(serveUntil(os.Args[2]))
		}
	}
	goleak.VerifyTestMain(m)
}

// serveUntil serves as the environment says, and dies at a point without another word; "" is none. It tells when it is up.
func serveUntil(point string) int {
	cfg, _, err := config.Load(nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	err = Serve(ctx, Options{
		Config: cfg, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)), SocketOnly: true, FailUnready: true,
		Ready: func(Started) { fmt.Println("up") },
		At: func(at string) {
			if at == point {
				_ = unix.Kill(os.Getpid(), unix.SIGKILL)
				select {}
			}
		},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
