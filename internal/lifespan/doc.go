// Package lifespan keeps the services of one process alive and takes them down in order.
//
// # Start
//
// Services start stage by stage, lowest first. The services of one stage start together, and the next stage waits
// until each of them has said that it is ready. One that ends before that holds nobody up any longer: it is started again
// like any other. A disabled service is never started and holds nobody up.
//
// # Life
//
// A service isn't expected to return before it is told to stop. When it returns or panics all the same, that is
// logged, counted, and it starts again after a pause that doubles from BackoffMin to BackoffMax; a service that was
// healthy for HealthyAfter starts with the smallest pause again, and its snapshot shows its last error no more. Neither
// its siblings nor the process notice. The exceptions are an Essential service, whose end is the end of the lifespan, and
// a MustStart one, for which that holds until it is ready for the first time. OnRestart is told of each new life: a daemon
// that ends again and again needs a person.
//
// That protects against a bug in a daemon's loop. One unit of a daemon's work (a job, a lease, a repair) goes through
// Guard, so that one bad unit costs that unit only and the pass goes on.
//
// A goroutine that a service starts isn't covered by either: its panic ends the process, as panics do.
//
// # Stop
//
// Stages stop in reverse order. The context of a service isn't cancelled by the context given to Run but by its turn;
// its cause is that of Run's context, or ErrStopping when that has none to tell. A service that doesn't return
// within its StopTimeout is logged and left behind, so that it can't keep the others from stopping.
//
// # Silence
//
// A service with an Interval has to call Beat at least that often; after ten of them in silence its snapshot says stale.
package lifespan
