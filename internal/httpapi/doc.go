// Package httpapi serves the HTTP interface that api/openapi.yaml describes.
//
// # Doors
//
// There are two: a TCP address and a unix socket in the data root. Whoever may open the socket is the operator: no
// token is asked, and only there may a task bring commands of its own. Over TCP a token is asked for everything but
// /healthz and /readyz once one is set. Without a token the address has to be loopback; then requests must name a
// local host (a page that rebinds its own name to 127.0.0.1 names itself), and no browser may send an unsafe request
// from another site.
//
// # Answers
//
// Handlers return errors, and one place turns them into problem+json: a RefusedError says its status and code, all
// else is 500 "internal" with the request's id, and the details go to the log only. A database that is away for now is
// no error of the server's: the answer is 503 with the outage's code, and the log has one line for each change of it.
//
// # Snapshots
//
// GET /queue is served from one encoded snapshot. However many clients poll, one build runs at a time, at most one a
// second, and less often when a build is slow, so that polling takes no more than a twentieth of the database's time.
// While clients poll busily none of them waits for a build: they get the snapshot that is there. A build that fails
// leaves the snapshot as it was, marked stale. A pause or its end drops the snapshot: whoever looks next sees it.
//
// # Streams
//
// A log that is followed is a stream of server-sent events. The id of an event is the offset after its last byte, so
// a client that lost the stream, also to a restart of the server, resumes without gap or repetition. The end of the
// run is an event of its own: a stream that closes without it was cut off. A stop of the server cuts all streams at
// once; other requests have StopTimeout to finish.
package httpapi
