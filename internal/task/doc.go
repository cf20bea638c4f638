// Package task owns work items and how they move: the tables repositories, tasks and task_events, the handler of stage
// jobs and the one that cleans up.
//
// # States
//
//	active     exactly one live job (queued or running) moves it: `stage`, or `merge` at a landing stage
//	waiting    nothing runs; something outside has to happen first, e.g. a person lands the ready branch
//	blocked    nothing runs; a person has to look at it (reason_code, reason), then Retry or Cancel
//	done       landed, or through its last stage
//	cancelled  by a person
//
// done and cancelled are final. All jobs that move a task share the dedupe key task:<id>, so a second one can't be
// queued. The same string is their concurrency key and that of the retire job, so none of them runs beside another.
//
// # Transitions
//
// AdvanceTx, ReturnTx, WaitTx, BlockTx and LandedTx each name the place (stage, round) that they start from. They lock
// the task's row, and when the task isn't there any more they change nothing and answer Superseded: a repetition, a
// late delivery and a loser of a race are all the same no-op. A transition writes the row, one event and the job that
// follows in the caller's transaction, which also ends the caller's own job: first CompleteTx, then the transition, as
// both jobs have the same dedupe key. Nobody can see a task between two jobs.
//
// Where a task goes is in StageTransitions, derived from its pipeline as it is at that moment. A stage that an edit
// removed blocks its tasks. A red gate sends a task back as the next round; with no round left it is blocked and keeps
// the gate's output. Every end (done, cancelled, blocked) enqueues the retire job in the same transaction.
//
// Locks are always taken in the order job, task: running jobs do so by nature (Lease.Tx locks the job), Cancel, Retry
// and Revive by withJob.
//
// # The stage job
//
// StageHandler is re-entrant: each claim does the same and finds what the claim before left.
//
//  1. A job whose stage or round isn't the task's any more completes without doing anything.
//  2. The agent: Agents follows the newest unconsumed run with the key agent:<stage>:<round>, takes its result, or
//     starts one. Only for a new one is the cap on runs checked and the workspace prepared.
//  3. The gates, in order, up to the first that isn't green. Each keeps its own evidence.
//  4. One transaction under the job's fence: the run is consumed, the pin falls, the events are written, the job ends,
//     the task moves and the next job is queued.
//
// After a crash before step 4 the run is still unconsumed, so the next claim takes the same result again and green gates
// are answered from their evidence. After step 4 nothing is left to repeat.
//
// What a run's outcome means for the attempt:
//
//	ok                                         the gates decide
//	agent_failed, timeout, stalled, crashed …  spent; tried again until the attempts are used up, then blocked
//	auth, not_found                            blocked at once: trying again would change nothing
//	needs_input                                blocked with the question; Retry takes the answer
//	interrupted, never_started, orphaned,
//	quota, rate_limited                        given back
//
// A pending gate gives the job back until it is to be asked again; its run stays unconsumed.
//
// # The retire job
//
// It salvages what the workspace holds (to refs/orch/salvage/<key>/<n>; a landed task only if something was never
// committed), publishes the ref, notes it, and only then removes workspace and checkouts. It rests while a job of the
// task lives, and does nothing when a person has let the task go on meanwhile.
//
// # What failure does
//
// A job that fails for good blocks its task in the same transaction, through JobFailedTx, which is the queue's
// OnFailed. A job that is gone in a way nobody foresaw leaves an active task without a job: Revive finds those.
package task
