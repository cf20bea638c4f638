package worker

import "time"

// HurryWithin gives a stop that is told to hurry another time than 2 s, in which a busy machine may come to nothing.
func (w *Worker) HurryWithin(d time.Duration) { w.hurryLimit = d }
