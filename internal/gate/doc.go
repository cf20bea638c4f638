// Package gate owns the registry of quality gates and the table gate_evidence.
//
// A gate is asked at the exit of a stage, on behalf of a running job, about one Subject: a commit of a task's
// branch and what its workspace looked like. It answers with a Result: pass, fail (with a reason that a person or an
// agent can act on) or pending (nothing to judge yet). Only a pass lets a task advance.
//
// # Evidence
//
// Every answer is kept as a row of gate_evidence, written under the fence of the job that asked. A later question is
// answered from that table only when the kept answer is a completed pass of the same task for the same tree and the
// same Definition.Hash; a failure is never taken from there. A check that looks at more than the tree (the
// workspace of `commits`) is always made anew.
//
// # The command gate
//
// `command` runs a shell command in a throw-away checkout of exactly the subject's commit, through the injected
// Runner. The run's key, gate:<name>:<definition hash>:<commit>, makes it re-entrant: a job claimed again after a
// crash follows the run that is already there, or takes its result. The evidence row and the consumption of the run
// commit together, so that a result is judged once.
//
//	exit code 0                         pass
//	any other code, a signal            fail
//	timeout, stalled                    fail: the command had its chance
//	interrupted, never_started, other   not judged: the run is consumed and UnjudgedError gives the job's attempt back,
//	                                    so that the next claim runs the command again
//
// What the caller gets as an error is never a verdict on the branch.
package gate
