// Package cli is the command line: its grammar and its commands. What people see of a task on its way is told by
// the packages below: watch, words and terminal.
//
// Client commands talk HTTP to the server of the data root over its socket, or to ORCH_URL with ORCH_API_TOKEN. `orch run`
// and `orch demo` start a server in this process when none runs on the data root, and then are clients like the others.
//
// Exit codes: 0 done, 1 failed or refused, 2 usage, 4 no server.
package cli
