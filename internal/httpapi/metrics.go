package httpapi

import (
	"context"
	"net/http"

	"orch/api"
)

// GetMetrics answers with what Config.Metrics writes.
func (h *handlers) GetMetrics(ctx context.Context, _ api.GetMetricsRequestObject) (api.GetMetricsResponseObject, error) {
	if h.metrics == nil {
		return nil, NotFound("such path")
	}
	return metricsAnswer{ctx, h.metrics}, nil
}

type metricsAnswer struct {
	ctx     context.Context //nolint:containedctx // of the request, which the generated interface doesn't pass on
	handler http.Handler
}

// VisitGetMetricsResponse asks for the text without the headers of the client: what is answered is what openapi.yaml says,
// neither another format nor compressed.
func (a metricsAnswer) VisitGetMetricsResponse(w http.ResponseWriter) error {
	r, err := http.NewRequestWithContext(a.ctx, http.MethodGet, "/metrics", http.NoBody)
	if err != nil {
		return err
	}
	a.handler.ServeHTTP(w, r)
	return nil
}
