// Package roster decides which agent works on a stage of a task, whether it may now, and how it is started.
//
// A run that is under way, or has ended and wasn't used yet, is followed or taken whatever the configuration says by now.
// Only when a new one is to be started does the roster look, in this order:
//
//  1. The stage's agent, its fallback, the fallback's fallback …: the first that isn't paused is chosen. While all are, the
//     job waits for `agent_paused:NAME`: for the first reset, or for a person to resume one.
//  2. The budgets. One that a person set for the task blocks it, one of the day lets the job wait. Nothing that runs is
//     ended because of a budget.
//  3. A session to go on with, that an earlier run of this agent left in this stage and round without having finished, and
//     since which no other agent has worked. Then
//     the workspace stays as it was left, and the agent is told why it was cut off, or the answer to its question. Without
//     one the workspace is made clean and the agent gets the whole prompt.
//
// What a run met that isn't the task's matter pauses its agent for all tasks: until a reset (quota, rate_limited), or until
// a person resumes it (auth, not_found). The pause is written in the transaction that uses the run's result. With a
// fallback that isn't paused the job goes on at once; without one, auth and not_found block the task that met them, and
// others wait.
package roster
