// Package alerts says which events of orch's parts a person is told of, and in which words.
//
// Each method is the hook of one part, called in the transaction of the event where there is one. Keys carry what makes
// the event the only one of its kind: a job and its epoch, a lease and its epoch, a task and the moment at which it stopped.
//
// One cause is one alert. A job that fails for good blocks its task in the same transaction, and only the task's end is
// told; of a job that the reaper failed, which blocks its task as well, only the reap is told (ReapedQueue). The failure of a job
// that sends alerts is told to nobody: that would never end.
package alerts
