// Package process tells which process is which, and starts and judges programs that run under a shim, which outlives its
// starter.
//
// # Who is who
//
// A pid alone names nothing: it is reused, it means something else in another pid namespace, and it survives no boot.
// An [Identity] therefore holds host, boot id, pid namespace, pid and start time. [Probe] answers with three values;
// [Unknown] is the answer whenever this process can't see far enough, and nobody may be declared dead on it. The number of
// a pid namespace is reused too, at once by a container that is started again, so the start of its first process belongs to
// its name; whoever has the number of another namespace knows that one ended. The host name only tells whether another boot was
// this machine's: it can change under a running system.
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
//	log        stdout and stderr without secrets; later segments are log.<offset of their first byte> (package runlog)
//	said.json  what the program has said in its output, as far as its format is understood; replaced while it runs
//	stop       why the run is to end, as the target of a link; the first one to write it decides the reason
//	exit.json  how it ended; written to a temporary name, synced, renamed, and synced again before the lock is let go
//	shim.err   what went wrong with the shim itself; normally empty
//	.room-*    room on the disk for what must still be written
//
// Beside the run directories lies contact, which tells all shims when orch was last known to the database (package
// contact). What is written nowhere, the environment and the secrets, comes to the shim by a pair of sockets (package bundle).
//
// [Run.Remove] takes the directory away as it came: it loses its name first. [Tidy] deletes what those left who were killed
// while they made or deleted one.
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
//	lock free, no exit.json, pid.json there  the shim died, and
//	    of this boot and pid namespace       the run is dead. What it left may live on until somebody ends it
//	    of another boot                      the run is dead: the boot's end has interrupted it
//	    of another pid namespace             foreign: what the shim left may live on where it can't be seen from here
//	lock can't be examined                   unknown
//
// A free lock is proof of the shim's end wherever it was. The data root is on a file system of the machine's own, where a
// lock holds across pid namespaces and ends with its holder, and the shim holds it for life. It is no proof of the
// program's end, and to look ends nothing: who has decided that a run is over calls [Run.EndRemains], which ends the
// program's group and session, all marked processes and what descends from them. Of a run of another boot or namespace
// only what carries its mark is ended, as its pids mean something else here. What can't be seen from here is never
// signalled.
//
// Several containers may share a root. A foreign run is dead once its namespace has ended, whose first process takes all
// others along, as when a container was restarted. The run directory doesn't tell whether it has: the caller may know.
//
// A run directory that is gone says nothing about its run, since a directory can be deleted or moved and a disk be away. The shim
// is then found by its process ([ShimOf]), and as long as it lives so does the run: it is adrift. It can be asked to end but not be
// told why ([StopAdrift]). When it ends it leaves its record in a new directory: its output is lost with the old one, but
// neither how it ended nor what it said of itself. A run is over that has lost both, directory and shim.
//
// A shim that doesn't answer, because it was stopped or is stuck, holds the lock and so its run lives. [Run.Kill] wakes
// it, or ends it and what it leaves; the reason then stands in the file stop alone.
//
// pid.json and exit.json count as garbled when they hold what no shim writes, whoever put it there. A garbled file is
// never an end by itself: with the lock held the run is alive. With the lock free it shows that a shim was here and left no
// record: the run is dead, and as much of it is ended as is known. A garbled spec.json only means that the directory's
// name has to do for the run's id, and that no shim can start the run.
//
// Those who look take the lock shared, without waiting and without creating it, for an instant, and judge by what they
// read while they hold it. The shim waits such instants out.
package process
