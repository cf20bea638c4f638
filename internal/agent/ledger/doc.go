// Package ledger keeps table runs: what is known of each execution of a program, and what agents have used by day.
//
// An intent is written in a transaction of the job's lease, and so is the start. What a run says and how it ends are facts
// about a process of this data root, true whoever holds the job: they are written without a lease, the end under the
// condition that none was written yet. The statement that writes it adds to the agent's day, which thereby counts each run
// once, however many notice its end.
package ledger
