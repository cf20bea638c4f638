// Package cli is the command line: its grammar, and the commands that work on this machine: they run orch, or look at its
// database, data root and repositories. Those that ask a running server are in package remote; what each command works with
// is in session, how it ends in exit. What people see of a task on its way is told by watch, words and terminal.
//
// Client commands talk HTTP to the server of the data root over its socket, or to ORCH_URL with ORCH_API_TOKEN. `orch run`
// and `orch demo` start a server in this process when none runs on the data root, and then are clients like the others.
//
// Exit codes: 0 done, 1 failed or refused, 2 usage, 4 no server.
package cli
