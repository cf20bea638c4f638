// Package agent runs programs for jobs: coding agents, gate commands and merge tests. Package ledger keeps what is known
// of them in table runs, package environ makes what they start in, package outcome says what their ends mean.
//
// # A run
//
// A run is one execution of one program under a shim (package process). Its row says what it is for (task and key) and
// how far it got; its directory, named by the run's id, holds what the shim knows. Of a task and key at most one run is
// unconsumed, which a unique index guards.
//
//	intended   the row and the job's pin to this data root were committed together; nothing runs yet
//	running    the program was seen alive and its pids were noted, on the row and on the job
//	finished   the end was noted: how, and what it means (Outcome)
//	consumed   whoever wanted the result has used it, in the transaction that moves its own state ([ledger.ConsumeTx])
//
// # Execute continues, it doesn't repeat
//
// [Runs.Execute] looks at the unconsumed run of its task and key:
//
//	none              a new one: room on the disk, Start, then intent and pin in one fenced transaction, then directory,
//	                  then shim
//	intended          a shim that came is followed. An intent of this very grant of the job may still get its shim, until
//	                  start_by. One of an earlier grant is forbidden at once: a late shim finds that and starts nothing
//	alive             followed
//	finished          its result is returned
//	dead              the shim left no record that can be read: what is left of the run is ended first, then it counts as
//	                  crashed; as interrupted when it was of another boot; as what somebody had asked to end it for. When
//	                  too many seem dead at once none is ended for a while (package verdict): looked at again later
//	adrift            its directory is gone and its shim lives: followed by that, until it has left its record in a new one.
//	                  With both gone the run is dead; with all run directories gone it is looked at again later
//	foreign           its shim, of another pid namespace of this boot, is dead: interrupted once that namespace is gone,
//	                  as in a restarted container; until then it may be at work there: looked at again later
//	unknown           its lock can't be examined: looked at again later
//
// A run that never started, or that was cancelled, says nothing about the work: it is consumed here and a new one starts.
//
// Every write on behalf of the job goes through the lease. The end of a run is the exception: it is a fact about a
// process of this data root, true whoever holds the job, so it is written under the condition that none was written yet.
// Once it is noted the row is enough: nothing that happens to the directory keeps the result from being used.
//
// # Looking from outside
//
// [Runs.Seem] tells what the runs of running jobs seem to be and ends nothing. [Runs.Recover] notes ends that have a record,
// or that went with their boot or pid namespace; also dead runs, but not those under a job that somebody has: who follows
// one notices by itself, and when nobody does, whoever has seen it dead for long enough says so with [Runs.NoteDead]. A run
// that goes on past any limit is ended with [Runs.End].
//
// # What it says
//
// The shim understands the output while it comes. The follower looks at that from time to time: a session's id is noted at
// once, what it has used now and then. The end is judged by all that the shim has understood, or by the log where the shim died
// first. Runs of gates and tests are judged by their end alone: what a branch's code prints decides nothing.
//
// # Leaving
//
// When the worker stops, Execute leaves at once and the agent goes on; the next grant attaches to it. When the lease is
// lost it leaves at once too, with the cause. When the job is to be cancelled it ends the run, waits for that, notes it
// and returns queue.ErrCancelRequested. A shim that doesn't end its run within its grace and some patience is killed.
package agent
