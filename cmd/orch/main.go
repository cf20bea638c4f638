// Command orch drives coding agents unattended: `orch --help` tells how.
package main

import (
	"os"
	"os/signal"
	"syscall"

	"orch/internal/cli"
)

func main() {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	os.Exit(cli.Main(os.Args[1:], cli.Streams{Out: os.Stdout, Err: os.Stderr, In: os.Stdin, Signals: signals}))
}
