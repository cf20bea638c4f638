package httpapi_test

import (
	"context"
	"io"
	"net/http"
	"testing"

	"orch/api"
	"orch/internal/httpapi/apitest"
)

// BenchmarkQueue is one poll of GET /queue over loopback, client included.
func BenchmarkQueue(b *testing.B) {
	backend := &apitest.Backend{}
	queue := fullQueue()
	for range 7 { // 128 running jobs
		queue.Running = append(queue.Running, queue.Running...)
	}
	backend.SetQueue(func(context.Context) (api.Queue, error) { return queue, nil })
	server, _ := apitest.Start(b, apitest.Config(backend, ""))
	b.RunParallel(func(pb *testing.PB) {
		transport := &http.Transport{}
		defer transport.CloseIdleConnections()
		poller := http.Client{Transport: transport}
		for pb.Next() {
			response, err := poller.Get("http://" + server.Addr() + "/queue")
			if err != nil {
				b.Error(err)
				return
			}
			if _, err := io.Copy(io.Discard, response.Body); err != nil {
				b.Error(err)
			}
			response.Body.Close()
		}
	})
}
