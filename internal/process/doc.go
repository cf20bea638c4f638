// Package process tells which process is which, and runs a program under a shim that outlives its starter.
//
// # Who is who
//
// A pid alone names nothing: it is reused, it means something else in another pid namespace, and it survives no boot.
// An [Identity] therefore holds host, boot id, pid namespace, pid and start time. [Probe] answers with three values;
// [Unknown] is the answer whenever this process can't see far enough, and nobody may be declared dead on it.
//
// # The run directory
//
// One program run owns one directory. [Create] makes it whole under another name and renames it without replacing
// anything, so a directory either exists with everything in it or not at all, and only one creator can win.
//
//	spec.json  what to run and within which limits; names of environment variables, never values (0600)
//	stdin      what the program reads, if anything
//	tmp/       TMPDIR of the program
//	lock       held exclusively by the shim from before its first decision until its end
//	pid.json   the shim's identity, then also the program's
//	log        stdout and stderr; later segments are log.<offset of their first byte>
//	stop       why the run is to end; the first one to write it decides the reason
//	exit.json  how it ended; written to a temporary name, synced, renamed, and synced again before the lock is let go
//	shim.err   what went wrong with the shim itself; normally empty
//
// # The shim
//
// [RunShim] is started in a session of its own with the program's environment and nothing else. In this order it
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
//
// # What others may conclude
//
//	exit.json there                          finished
//	lock held                                alive
//	lock free, no exit.json, no pid.json     pending: no shim was here yet. [Forbid] settles it: under the lock it writes
//	                                         never_started, and a shim that comes later finds that and starts nothing
//	lock free, no exit.json, pid.json there  the shim died. In the same boot and pid namespace the run is dead, and
//	                                         whoever found it first ends the group and all marked processes;
//	                                         after another boot it is dead with nothing to end; else unknown
//
// Those who look take the lock shared, without waiting and without creating it, for an instant, and judge by what they
// read while they hold it. The shim waits such instants out.
//
// # The log
//
// Offsets are logical: the first byte ever written has offset 0, and a byte keeps its offset when older segments are
// dropped to stay within the cap. A reader that is too late is moved to the oldest byte there is and can tell by the offset.
package process
