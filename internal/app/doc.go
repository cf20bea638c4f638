// Package app wires orch together; it and the packages below it are the only ones that know all others. Each consumer
// declares the small interfaces it needs, and the adapters here fill them in.
//
//   - server.go: one orch process under its supervisor, stage by stage; serve.go: with an API and a private PostgreSQL;
//     join.go: a worker only; readiness.go: what /readyz says of it
//   - system.go: what stands on database and data root once both are there; unserved.go: tasks that nobody would begin
//   - execution.go, landing.go: agents and gates, and the merge gate's view of tasks
//
// Below it, knowing each other but not the wiring: start (how a process gets database and data root, or waits for them),
// catalog (how a task is to be done), roster (which agent works on it, whether it may, and how it is started), place (where its files are, and what keeps the processes of one data root apart at
// them), view (what the API shows), database (given or private, and its schema), and what commands need without a server:
// setup and doctor.
//
// # Several processes on one data root
//
// `orch serve` and any number of `orch worker` may work in one data root, and each does what all do: it claims, follows and
// recovers. What they share is guarded where it is: jobs by their leases and concurrency keys, so that one process at a time
// works on a task; the generation by the root's start key; mirrors by locks on their files; runs by the one row that a
// task and key may have, their ends being written once; a task's workspace and checkouts, which a process that was stopped
// and lost its job might still be changing, by a lock that is taken under a lease which holds.
package app
