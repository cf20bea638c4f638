package queue

import "time"

// Backoff is the wait after an attempt.
func Backoff(q *Queue, attempt int) time.Duration { return q.backoff(attempt) }
