// Package reaper gives on what the dead hold: running jobs whose worker, handler or run is gone (ORCH-065 FR-1). It is no
// job itself, needs no handler, works without a restart, and may run in any number of copies, on any number of hosts.
//
// # Evidence
//
// A look at a running job has three parts. Who holds it: the worker's row names a process (boot, pid namespace, pid, start
// time), which is probed where it can be seen, and is gone where nobody else holds the lock of its data root; and the lease says
// by the database's clock whether it still beats. What it runs: a shim that holds its run's lock lives, whatever became of those
// who followed it; without a lock and without a record it is dead. And for how long that has gone on. [Judge] makes one verdict
// of it, the first row that fits:
//
//	worker's process dead                         released at once, whatever the run is: a living one is followed again, a finished
//	                                              or dead one is judged by the handler that comes next, no run begins anew
//	run dead, seen from where it ran              after DeadTicks: what it left is ended, its end noted, the attempt spent
//	run alive past its ceiling, seen from there   ended with its group; its handler then finds it timed out
//	run of this root that can't be judged, past it    given up, the attempt spent
//	no run, nothing ended or begun for that long  taken from a handler that is stuck, the attempt spent
//	lease run out                                 after DeadTicks: released. The run stays pinned to its root
//	run finished, nothing ended or begun for that long  released from a handler that is stuck: another uses the result
//	run finished, its handler still "following"   after DeadTicks, and once that has been so for Fresh: released
//	run or worker can't be judged                 suspect: nothing is done
//	anything else                                 alive
//
// # Why nothing that lives is reaped
//
// A run is only taken for dead by who can see its lock and its process, that is in its own data root, boot and pid namespace.
// Anybody else answers unknown, and unknown decides nothing but past the ceiling, in the run's own root. The look has to say the same
// at DeadTicks ticks in a row, two at least: a tick of alive or unknown, or one that didn't see the job, since the
// database was away, starts the count again. Many that seem dead at once are a broken look, not a massacre: package
// agent/verdict holds them back, and [Config.OnMassDeath] tells of it once. The ceiling of a run is above its own timeout, which
// its shim keeps. Whether anything of this boot is past its ceiling, run or handler, both the database's clock and the boot clock
// must say: that since the run was intended, or since this reaper first saw the handler in what it does. What is released keeps
// its run: the job is pinned to the run's root, whose handler goes on with it, so that a monitor that dies again and again costs
// a living agent nothing, neither attempts nor recoveries.
//
// Counts are kept in memory by job, epoch, run and kind of evidence, and first sights by job and epoch. A restart forgets them,
// which only delays.
//
// # One finalising path
//
// The reaper moves no task and runs no gate (FR-1.2). A job whose run has ended is released with its attempt and with the run
// unconsumed: the next grant's handler uses the result once, by the transaction that a job which never lost its
// monitor goes through too, guarded by stage, round and the run's consumed_at. Where an attempt is spent here, the run is consumed and
// unpinned in that same transaction; else the next handler would spend another one on the same death. With no attempt left
// the job fails, its task is blocked and the alert queued, all in it too.
//
// Every write is conditional on running, worker, epoch and run as they were seen, and on lease or phase where those were
// the evidence. No row means that somebody was first, which is fine.
//
// What a dead worker held without a run is given on by the page, each row under the same condition: a worker that dies with
// thousands of jobs holds up the first claim after a start for a moment, not for minutes. Each is counted, told and logged for
// itself (FR-4.2). Those under a run, to be cancelled, about to be a crash loop, locked, or in whose company something failed,
// go one by one.
//
// Recoveries count deaths of workers under a job without a run, or whose run has ended: five, then it fails with crash_loop. They don't
// count while a run lives.
//
// What was taken from a dead or lost worker while its run lives, or may, is given on, not reaped: it is a line in the log, and in
// no total. All else is a reap: a line, reaped_total, last_reaped and [Config.OnReapTx], in the reap's transaction.
//
// # Ticks
//
// [Reaper.FirstTick] is all that a worker's first claim waits for: it acts on dead processes only, and ends nothing. With the
// reaper switched off it is all that there is ([Reaper.Release]): repeated until it was done once, then never again. All other
// parts come with each [Reaper.Tick]: the jobs by pages, workers that are gone, hosts, what ends take time, ends of runs that
// nobody watches. Each part, and in it each job, is guarded: neither a panic nor an error with one keeps the others waiting.
// An error is an outcome, named once per change, and tried again at the next tick.
//
// Merge leases of dead holders are no part of it. Package app frees them at the start and at the reaper's interval in a
// service of its own, lease_reclaim, which has its own switch and goes on with the reaper off. Before each of its passes it
// calls FirstTick, unless the reaper is off: then the dead holder's job is in line again when the first in line is woken.
package reaper
