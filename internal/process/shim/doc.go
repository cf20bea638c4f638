// Package shim owns one run: it starts the program of a run directory, bounds it, ends it and records how it went.
//
// It outlives whoever launched it, so that a program goes on while orch is restarted and its exit status is never lost.
// The files it leaves, and what others may conclude from them, are told in package process.
//
// # Protocol
//
// [Run] is started in a session of its own with next to no environment. In this order it
//
//  1. catches signals, becomes undumpable (its memory is closed to the program's user) and a child subreaper;
//  2. takes the lock; from here on it alone decides about this run;
//  3. gives up if exit.json or pid.json is there;
//  4. reads the program's environment and the secrets from its standard input. When they don't come whole, or the run's
//     start_by has passed, it writes never_started;
//  5. takes the room on the disk that it needs to the end: what is missing now is no harm yet;
//  6. writes pid.json with its own identity, then looks for a stop: whoever writes stop first and reads pid.json second
//     either is seen here or finds a pid to signal;
//  7. starts the program in a process group of its own, in a cgroup of its own where the system allows it, and marked by
//     ORCH_RUN=<id>, and adds it to pid.json;
//  8. takes the output, without the secrets, to the log and to the parser of its format, and notes what that has
//     understood; ends the program on SIGTERM and at its deadlines;
//  9. once the program is gone, ends what it left behind. Being the subreaper, the shim is parent to every orphan, so
//     "no child left" proves that nothing is left, whatever session, group or environment it had chosen;
//  10. drains the pipe (bounded: whoever holds it open can't hold up the run), makes log and said.json durable, writes
//     exit.json, empties the temporary directory and leaves. A SIGTERM that came until then is why the program failed. Where
//     somebody has taken the run directory away, the record, with what the program has said of itself, is left in a new
//     one of that name.
//
// Ending means: close stdin, SIGTERM to the group, wait for the grace, then SIGKILL to everything until nothing is left.
//
// # Deadlines
//
// All count on CLOCK_BOOTTIME: a suspended machine has used them up.
//
//   - timeout: the whole run.
//   - stalled: no output for too long. While the program waits for a tool of its own a limit of its own holds, and when its
//     last word was that it has run into a limit, one that would sleep until that is over gets five minutes.
//   - orphaned: for too long no orch of the root was in contact with the database, and another host may be about to get the
//     job. The shim looks for it only when the last contact that it knows of is too old: it neither polls nor is woken.
//     One that finds out late, because the machine slept, gives orch a moment to get in contact again.
//
// # A full disk
//
// It ends no program, as everything that must be written has its room already. The log keeps its newest output in memory
// and goes on when there is room again (package runlog). The record is tried until it is on disk.
package shim
