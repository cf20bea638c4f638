// Package reconcile is the daemon that moves whatever an event should have moved and didn't.
//
// It is level-triggered: each tick looks at how things are, never at what happened, so that it doesn't matter which message,
// notification or process was lost. A healthy tick reads and says nothing, and writes nothing.
//
// # Repairs
//
//	job_missing     an active task that no job moves            its stage's job is enqueued
//	intent_open     a task that stopped in the middle of its    the merge job is enqueued; it looks whether the change has landed
//	                landing, with the intent written
//	landed_outside  a branch that waits for a person, who has   the merge job is enqueued; it finds the work upstream
//	                landed it by now, in whatever way
//	parked_cleared  a landing that was given up for a cause     the merge job is enqueued
//	                that is gone
//	runs_left       an ended task with runs that nobody will    its clean-up is enqueued
//	                use
//	unserved        a task that no worker would ever begin      it is blocked, with what is missing
//
// A repair is a look, which finds subjects page by page in the order of their ids, and a remedy for one of them. The remedy is
// one transaction that locks the subject and looks again, as the look was at another moment: of any number of
// reconcilers one repairs, and nothing is done for a task that somebody is just moving. In it are the move, one event of the
// task, the counter and what GET /queue shows of the last repair. After it comes one line in the log.
//
// Nothing is landed, ended or run here: what a repair begins is a job, with all fences of one.
//
// # What doesn't end a task's rest for ever
//
// A repair may be in vain: the landing stops again at once. So whatever was resumed and stopped again rests twice as
// long the next time, up to six hours, counted by the task's own events since a person last did something with it; a parked
// landing is resumed a few times only, and is a person's then. An open intent is never given up, since nobody can cancel it.
//
// A blocked task is a person's otherwise: retried, answered, or cancelled. Nothing here takes that from them.
//
// # Failure
//
// Each subject is a unit: it has its own bound of time, its panic is caught, and the pass goes on. What fails is told once,
// with its code, until the code changes. An outage of the database is one such line.
//
// # Tables
//
// The looks read tables of several packages in one statement, because only one statement sees them as of one moment. All
// that is written, but for the row of the last repair, is written by the package that owns it.
package reconcile
