// Package shim owns one run: it starts the program of a run directory, bounds it, ends it and records how it went.
//
// It outlives whoever launched it, so that a program goes on while orch is restarted and its exit status is never lost.
// The files it leaves, and what others may conclude from them, are told in package process.
//
// # Protocol
//
// [Run] is started in a session of its own with the program's environment and nothing else. In this order it
//
//  1. catches signals, becomes undumpable (its environment and memory are closed to the program's user) and a child subreaper;
//  2. takes the lock; from here on it alone decides about this run;
//  3. gives up if exit.json or pid.json is there, and writes never_started if the run's start_by has passed;
//  4. writes pid.json with its own identity, then looks for a stop: whoever writes stop first and reads pid.json second
//     either is seen here or finds a pid to signal;
//  5. starts the program in a process group of its own, marked by ORCH_RUN=<id>, and adds it to pid.json;
//  6. copies output to the log, and ends the program on SIGTERM, at its timeout, or when it was silent for too long.
//     Both limits count on CLOCK_BOOTTIME: a suspended machine has used them up;
//  7. once the program is gone, ends what it left behind. Being the subreaper, the shim is parent to every orphan, so
//     "no child left" proves that nothing is left, whatever session, group or environment it had chosen;
//  8. drains the pipe (bounded: whoever holds it open can't hold up the run), writes exit.json and leaves.
//
// Ending means: close stdin, SIGTERM to the group, wait for the grace, then SIGKILL to everything until nothing is left.
package shim
