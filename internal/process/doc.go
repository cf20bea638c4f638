// Package process tells which process is which, and starts and judges programs that run under a shim, which outlives its
// starter.
//
// # Who is who
//
// A pid alone names nothing: it is reused, it means something else in another pid namespace, and it survives no boot.
// An [Identity] therefore holds host, boot id, pid namespace, pid and start time. [Probe] answers with three values;
// [Unknown] is the answer whenever this process can't see far enough, and nobody may be declared dead on it. The host
// name only tells whether another boot was this machine's: it can change under a running system.
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
// The directory has two sides. A [Run] is what others see of it; a [Hold] is the side of its shim, the process that owns
// the run (package shim tells what it does with it).
//
// # What others may conclude
//
//	exit.json there                          finished
//	lock held                                alive
//	lock free, no exit.json, no pid.json     pending: no shim was here yet. [Forbid] settles it: under the lock it writes
//	                                         never_started, and a shim that comes later finds that and starts nothing
//	lock free, no exit.json, pid.json there  dead: the shim died. Whoever found it first ends the group and all marked
//	                                         processes. A run of another boot or pid namespace was interrupted by the
//	                                         end of that; only marked processes are ended, as its pids mean nothing here
//	lock can't be examined                   unknown
//
// A free lock is proof wherever the shim was. The data root is on a file system of the machine's own, where a lock holds
// across pid namespaces and ends with its holder, and the shim holds it for life. Only one server works on a root at a
// time, so one that finds a run of another namespace or boot has come in the place of the one that started it, as in a
// restarted container. The rest of the run ended with its namespace, whose first process takes all others along, or with
// its boot. What can't be seen from here is never signalled.
//
// pid.json and exit.json count as garbled when they hold what no shim writes, whoever put it there. A garbled file is
// never an end by itself: with the lock held the run is alive. With the lock free it shows that a shim was here and left no
// record: the run is dead, and as much of it is ended as is known. A garbled spec.json only means that the directory's
// name has to do for the run's id, and that no shim can start the run.
//
// Those who look take the lock shared, without waiting and without creating it, for an instant, and judge by what they
// read while they hold it. The shim waits such instants out.
//
// # The log
//
// Offsets are logical: the first byte ever written has offset 0, and a byte keeps its offset when older segments are
// dropped to stay within the cap. A reader that is too late is moved to the oldest byte there is and can tell by the offset.
package process
