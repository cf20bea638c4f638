package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"orch/internal/httpapi/apitest"
)

const document = "../../api/openapi.yaml"

// recorder is a test that may fail.
type recorder struct {
	testing.TB
	failed []string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, _ ...any) { r.failed = append(r.failed, format) }

// Every answer that a test of this package reads is checked against the OpenAPI document; so the check must find
// something.
func TestTheContractIsChecked(t *testing.T) {
	t.Parallel()
	contract, err := apitest.LoadContract(document)
	if err != nil {
		t.Fatal(err)
	}
	const problem = `{"type":"about:blank","title":"x","status":404,"code":"not_found","detail":"x"}`
	for name, c := range map[string]struct {
		method, path string
		status       int
		kind, body   string
		kept         bool
	}{
		"as promised":          {http.MethodGet, "/healthz", 200, "application/json", `{"status":"ok"}`, true},
		"with a charset":       {http.MethodGet, "/healthz", 200, "application/json; charset=utf-8", `{"status":"ok"}`, true},
		"problem":              {http.MethodGet, "/tasks/x%2Fy", 404, "application/problem+json", problem, true},
		"problem, no path":     {http.MethodGet, "/nothing", 404, "application/problem+json", problem, true},
		"log":                  {http.MethodGet, "/runs/x/log", 200, "text/plain; charset=utf-8", "x", true},
		"other status":         {http.MethodGet, "/healthz", 201, "application/json", `{"status":"ok"}`, false},
		"other type":           {http.MethodGet, "/healthz", 200, "text/plain", `{"status":"ok"}`, false},
		"no type":              {http.MethodGet, "/healthz", 200, "", `{"status":"ok"}`, false},
		"no JSON":              {http.MethodGet, "/healthz", 200, "application/json", `{`, false},
		"field missing":        {http.MethodGet, "/healthz", 200, "application/json", `{}`, false},
		"field not described":  {http.MethodGet, "/healthz", 200, "application/json", `{"status":"ok","x":1}`, false},
		"field of other type":  {http.MethodGet, "/healthz", 200, "application/json", `{"status":1}`, false},
		"field is null":        {http.MethodGet, "/healthz", 200, "application/json", `{"status":null}`, false},
		"no such path":         {http.MethodGet, "/nothing", 200, "application/json", `{}`, false},
		"no such method":       {http.MethodDelete, "/healthz", 200, "application/json", `{"status":"ok"}`, false},
		"list":                 {http.MethodGet, "/readyz", 200, "application/json", `{"status":"x","checks":[{"name":"x","status":"ok","code":null}]}`, true},
		"list of others":       {http.MethodGet, "/readyz", 200, "application/json", `{"status":"x","checks":[{"name":"x"}]}`, false},
		"no list":              {http.MethodGet, "/readyz", 200, "application/json", `{"status":"x","checks":{}}`, false},
		"word of the set":      {http.MethodPost, "/resume", 200, "application/json", `{"scope":"lane","name":"x","was_paused":true}`, true},
		"word out of the set":  {http.MethodPost, "/resume", 200, "application/json", `{"scope":"person","name":"x","was_paused":true}`, false},
		"a time":               {http.MethodPost, "/pause", 200, "application/json", `{"scope":"lane","name":"x","reason":"x","actor":"x","since":"2026-03-01T10:00:00.5Z","code":null,"until":null}`, true},
		"no time":              {http.MethodPost, "/pause", 200, "application/json", `{"scope":"lane","name":"x","reason":"x","actor":"x","since":"yesterday","code":null,"until":null}`, false},
		"fraction for integer": {http.MethodGet, "/nothing", 404, "application/problem+json", strings.Replace(problem, "404", "4.5", 1), false},
	} {
		r, err := http.NewRequestWithContext(t.Context(), c.method, "http://localhost"+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer := &http.Response{StatusCode: c.status, Request: r, Header: http.Header{"Content-Type": {c.kind}}}
		seen := &recorder{TB: t}
		contract.Check(seen, answer, []byte(c.body))
		if c.kept != (len(seen.failed) == 0) {
			t.Errorf("%s: the check found %q", name, seen.failed)
		}
	}
}
