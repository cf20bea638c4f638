// Package remote has the commands that ask a running server, wherever it runs: tasks, jobs, the queue, agents and pauses.
//
// They know the API and what makes words of it, and nothing of what is behind it: no database, no data root, no configuration.
package remote
