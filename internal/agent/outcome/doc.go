// Package outcome judges runs: what the end of one means for the work, and when it makes sense to go on.
//
// What is known of an end is looked at in this order, and the first that says something decides:
//
//  1. The shim's reason. Who was ended at a limit, by a person or by orch didn't end by itself. Only a silence or a
//     lack of time gives way to a refusal that was the last thing said: a program that sleeps until its quota is back
//     has met the quota, not the limit of its time.
//  2. What the program said in fields of its format. A clean exit is no success where the format has an event for the
//     end; and where that event tells of a success, no text and no exit code is looked at.
//  3. Texts: the error in the program's own words, else its last plain lines. Lines of JSON never count, since they hold
//     whatever the agent has read or written. HTTP codes count at digit boundaries only.
//  4. The exit code, as the program means it before as a shell means it.
//
// Runs without a format, those of gates, are judged by their end alone: what a branch prints must not decide anything.
package outcome
