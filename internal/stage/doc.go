// Package stage does the jobs of tasks: the stage job, which has an agent work and asks the gates, and the retire job,
// which cleans up. Both may be claimed any number of times, after any crash: nothing of theirs is done twice. Where a
// task goes from here is decided and written by package task.
//
// # The stage job
//
// Handler is re-entrant: each claim does the same and finds what the claim before left.
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
// RetireHandler salvages what the workspace holds (to refs/orch/salvage/<key>/<n>; a landed task only if something was
// never committed), publishes the ref, notes it, and only then removes workspace and checkouts. A repetition after a
// crash finds the note and doesn't salvage again, from a workspace that may be half gone. It rests while a job of the
// task lives, and does nothing when a person has let the task go on meanwhile.
//
// # Prompts
//
// A stage's prompt is a text/template over PromptData. CheckPrompt refuses before a run what RenderPrompt could only
// fail at later.
package stage
