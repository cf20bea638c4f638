// Package task owns work items and how they move: the tables repositories, tasks and task_events. The jobs that do the
// work of a stage are in package stage.
//
// # States
//
//	active     exactly one live job (queued or running) moves it: `stage`, or `merge` at a landing stage
//	waiting    nothing runs; something outside has to happen first, e.g. a person lands the ready branch
//	blocked    nothing runs; a person has to look at it (reason_code, reason), then Retry or Cancel. Resume is for the
//	           reconciler, when what a landing stopped for is over
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
// Where a task goes is in flow.StageTransitions, derived from its pipeline as it is at that moment. A stage that an edit
// removed blocks its tasks. A red gate sends a task back as the next round; with no round left it is blocked and keeps
// the gate's output. Every end (done, cancelled, blocked) enqueues the retire job in the same transaction, but for a task
// that is blocked with a question: its agent goes on in the same workspace once Answer has the answer.
//
// Locks are always taken in the order job, task: running jobs do so by nature (Lease.Tx locks the job), Cancel, Retry,
// Answer, ReviveOne and Resume by withJob.
//
// # What failure does
//
// A job that fails for good blocks its task in the same transaction, through JobFailedTx, which is the queue's
// OnFailed. A job that is gone in a way nobody foresaw leaves an active task without a job: Jobless finds those, ReviveOne
// enqueues what is missing. Both look again under the locks, so that any number of processes may do it at once.
package task
