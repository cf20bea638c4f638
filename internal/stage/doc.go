// Package stage does the jobs of tasks: the stage job, which has an agent work and asks the gates, and the retire job,
// which cleans up. Both may be claimed any number of times, after any crash: nothing of theirs is done twice. Where a
// task goes from here is decided and written by package task.
//
// # The stage job
//
// Handler is re-entrant: each claim does the same and finds what the claim before left.
//
//  1. A job whose stage or round isn't the task's any more completes without doing anything. The first job of a task ties
//     it to its data root, where branch and workspace are from then on; one that another root claims is given to that one.
//  2. The agent: Agents follows the newest unconsumed run with the key agent:<stage>:<round>, takes its result, or
//     starts one. Only before a new one does it look at pauses and budgets, of which a *BlockError or a snooze may come,
//     and have the workspace made ready: made clean for an agent that begins, left as it was for one whose session goes on.
//  3. The gates, in order, up to the first that isn't green. Each keeps its own evidence.
//  4. One transaction under the job's fence: the run is consumed and let go of, a pause of its agent begins, the events
//     are written, the job ends, the task moves and the next job is queued.
//
// After a crash before step 4 the run is still unconsumed, so the next claim takes the same result again and green gates
// are answered from their evidence. After step 4 nothing is left to repeat.
//
// What a run's outcome means for the attempt:
//
//	ok                                         the gates decide
//	agent_failed, timeout, stalled, crashed …  spent; tried again until the attempts are used up, then blocked
//	setup_failed                               the same, but no fault of the agent's
//	auth, not_found                            blocked at once: trying again would change nothing
//	needs_input                                blocked with the question; Answer lets it go on
//	interrupted, never_started, orphaned       given back; interrupted and orphaned again and again: blocked
//	quota, rate_limited                        given back until the limit is over
//
// A run that says more than that for its agent brings a Pause along, for all tasks, and with it maybe the fallback that
// takes over at once: then the attempt is given back whatever the outcome is.
//
// A pending gate gives the job back until it is to be asked again; its run stays unconsumed. A branch that can't be taken
// as the agent left it (BranchError) is a red answer of the gate commits: the agent is told, and the next Prepare heals it.
//
// Two things are nobody's fault here and spend no attempt, however long they last: a full disk, and an edit of the
// configuration that took away the stage, pipeline or agent of a run that still lives. To block the task would end it.
//
// # The retire job
//
// RetireHandler ends what still runs for the task, salvages what the workspace holds (a landed task only if something was
// never committed) as the next refs/orch/salvage/<key>/<n> of the mirror, publishes and notes every salvage there that
// wasn't noted yet, those of earlier rounds too, and only then removes workspace and checkouts. What the newest salvage
// has already isn't kept again, and a workspace goes at once, so that each step may be repeated after any crash.
//
// It rests while a job of the task lives, and does nothing when a person has let the task go on meanwhile. What fails is
// told once in the task's history and tried again for ever, at growing intervals: no attempt is spent on it.
package stage
